package entracte

import "iter"

// allItems are the items of all pages; each page is asked for when it is needed. An error is the last thing it
// gives.
func allItems[T any](pageAfter func(token string) (Page[T], error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		token := ""
		for {
			page, err := pageAfter(token)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, item := range page.Items {
				if !yield(item, nil) {
					return
				}
			}
			if token = page.NextPageToken; token == "" {
				return
			}
		}
	}
}

// orNewID is a request's id: the caller's, or a new one.
func orNewID(id string) string {
	if id != "" {
		return id
	}
	return newID()
}
