package entracte

import "google.golang.org/grpc/codes"

// The classes of errors, by status code. Each is found by errors.As, and so is the *Error in it.

// InvalidArgument: the request is wrong; Violations says where.
type InvalidArgument struct{ *details }

// Unwrap gives what all errors have.
func (e InvalidArgument) Unwrap() error { return e.details }

// NotFound: there is no such thing, or it belongs to another tenant.
type NotFound struct{ *details }

// Unwrap gives what all errors have.
func (e NotFound) Unwrap() error { return e.details }

// AlreadyExists: there is one already.
type AlreadyExists struct{ *details }

// Unwrap gives what all errors have.
func (e AlreadyExists) Unwrap() error { return e.details }

// FailedPrecondition: the request does not fit the state of things; Metadata says in which it is.
type FailedPrecondition struct{ *details }

// Unwrap gives what all errors have.
func (e FailedPrecondition) Unwrap() error { return e.details }

// OutOfRange: a position or size is beyond what there is.
type OutOfRange struct{ *details }

// Unwrap gives what all errors have.
func (e OutOfRange) Unwrap() error { return e.details }

// Unauthenticated: no valid credential was sent.
type Unauthenticated struct{ *details }

// Unwrap gives what all errors have.
func (e Unauthenticated) Unwrap() error { return e.details }

// PermissionDenied: the principal may not do this.
type PermissionDenied struct{ *details }

// Unwrap gives what all errors have.
func (e PermissionDenied) Unwrap() error { return e.details }

// ResourceExhausted: there is too much of something; RetryAfter says when to try again.
type ResourceExhausted struct{ *details }

// Unwrap gives what all errors have.
func (e ResourceExhausted) Unwrap() error { return e.details }

// Unavailable: the server cannot answer now. The call was made again, in vain, before this is returned.
type Unavailable struct{ *details }

// Unwrap gives what all errors have.
func (e Unavailable) Unwrap() error { return e.details }

// Aborted: something else got in the way.
type Aborted struct{ *details }

// Unwrap gives what all errors have.
func (e Aborted) Unwrap() error { return e.details }

// Unimplemented: this server does not support that.
type Unimplemented struct{ *details }

// Unwrap gives what all errors have.
func (e Unimplemented) Unwrap() error { return e.details }

// DeadlineExceeded: the context's deadline passed. It bounds the wait, not the run, which goes on. errors.Is
// tells that it is a context.DeadlineExceeded, too.
type DeadlineExceeded struct{ *details }

// Unwrap gives what all errors have.
func (e DeadlineExceeded) Unwrap() error { return e.details }

// Internal: a fault of the server; its log has the details. Metadata: request_id.
type Internal struct{ *details }

// Unwrap gives what all errors have.
func (e Internal) Unwrap() error { return e.details }

// StreamError: the stream is not what the contract says.
type StreamError struct{ *details }

// Unwrap gives what all errors have.
func (e StreamError) Unwrap() error { return e.details }

// classOf puts an error into its class; an error of another code is none of them.
func classOf(failure *Error) error {
	switch failure.Code {
	case codes.InvalidArgument:
		return InvalidArgument{failure}
	case codes.NotFound:
		return NotFound{failure}
	case codes.AlreadyExists:
		return AlreadyExists{failure}
	case codes.FailedPrecondition:
		return FailedPrecondition{failure}
	case codes.OutOfRange:
		return OutOfRange{failure}
	case codes.Unauthenticated:
		return Unauthenticated{failure}
	case codes.PermissionDenied:
		return PermissionDenied{failure}
	case codes.ResourceExhausted:
		return ResourceExhausted{failure}
	case codes.Unavailable:
		return Unavailable{failure}
	case codes.Aborted:
		return Aborted{failure}
	case codes.Unimplemented:
		return Unimplemented{failure}
	case codes.DeadlineExceeded:
		return DeadlineExceeded{failure}
	case codes.Internal:
		return Internal{failure}
	default:
		return failure
	}
}
