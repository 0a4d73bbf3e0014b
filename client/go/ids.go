package entracte

import "crypto/rand"

// newID makes an id for a run or a request that nobody has used.
func newID() string { return rand.Text() }
