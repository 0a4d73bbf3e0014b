package entracte

import (
	"context"
	"errors"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// FieldViolation is one fault of a request: the path of the field, and what is wrong with it.
type FieldViolation struct {
	Field       string `json:"field"`
	Description string `json:"description"`
}

// Error is what every error of a call has. It is within a type of its own for each reason that this version
// knows ([RunNotFound], [ThreadBusy] ...), and these are within one for each status code ([NotFound],
// [Aborted] ...); a reason newer than this version is within the latter alone.
type Error struct {
	// Code is the gRPC status code.
	Code codes.Code
	// Reason is the name in the contract's ErrorReason, for example RUN_NOT_FOUND; empty where the server
	// gave none.
	Reason string
	// Message is what happened, in words.
	Message string
	// Metadata is what the server added; the reasons' types say what.
	Metadata map[string]string
	// Violations are the faulty fields.
	Violations []FieldViolation
	// RetryAfter is how long to wait before the same call may succeed; 0 where the server did not say.
	RetryAfter time.Duration

	cause error
}

// details is embedded in the classes. Under its own name it would hide its method Error.
type details = Error

// Error describes it in a line, and in one more for each faulty field.
func (e *Error) Error() string {
	var text strings.Builder
	text.WriteString(e.Reason)
	if e.Reason == "" {
		text.WriteString(e.Code.String())
	}
	if e.Message != "" {
		text.WriteString(": " + e.Message)
	}
	for _, violation := range e.Violations {
		text.WriteString("\n  " + violation.Field + ": " + violation.Description)
	}
	return text.String()
}

// Unwrap gives the error of gRPC, where there is one.
func (e *Error) Unwrap() error { return e.cause }

// Is tells that an error of an expired or cancelled context is one, too.
func (e *Error) Is(target error) bool {
	return target == context.DeadlineExceeded && e.Code == codes.DeadlineExceeded ||
		target == context.Canceled && e.Code == codes.Canceled
}

// Retryable tells whether the same call may succeed later: the server is not there now, something got in the
// way, or it said when to come back.
func (e *Error) Retryable() bool {
	return e.Code == codes.Unavailable || e.Code == codes.Aborted || e.RetryAfter > 0
}

const errorDomain = "entracte.dev"

// errorOf is the error of a call that ended with a status other than OK.
func errorOf(failure error) error {
	given := status.Convert(failure)
	described := &Error{
		Code:     given.Code(),
		Message:  given.Message(),
		Metadata: map[string]string{},
		cause:    failure,
	}
	for _, detail := range given.Details() {
		switch detail := detail.(type) {
		case *errdetails.ErrorInfo:
			if detail.Domain == errorDomain {
				described.Reason = detail.Reason
			}
			for key, value := range detail.Metadata {
				described.Metadata[key] = value
			}
		case *errdetails.BadRequest:
			for _, violation := range detail.FieldViolations {
				described.Violations = append(described.Violations, FieldViolation{violation.Field, violation.Description})
			}
		case *errdetails.RetryInfo:
			described.RetryAfter = detail.RetryDelay.AsDuration()
		}
	}
	return typed(described)
}

// typed is an error as the type of its reason, as long as that goes with its code.
func typed(described *Error) error {
	if described.Reason == "" && described.Code == codes.Unavailable {
		// Every status of the server has a reason: this one was made up by the transport.
		return ServerUnreachable{Unavailable{described}}
	}
	class := classOf(described)
	if reason, known := reasons[described.Reason]; known {
		if named := reason(described); sameClass(named, class) {
			return named
		}
	}
	return class
}

// sameClass tells whether a reason's error is within the class that its code has.
func sameClass(named, class error) bool { return errors.Unwrap(named) == class }

// contextError is the error of a call whose context is done.
func contextError(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return DeadlineExceeded{&Error{
			Code: codes.DeadlineExceeded, Message: "the deadline passed; what was started goes on", cause: context.Cause(ctx),
		}}
	}
	return &Error{Code: codes.Canceled, Message: "the call was cancelled by its caller", cause: context.Cause(ctx)}
}

// invalid is the error of a request that cannot be sent.
func invalid(field string, err error) error {
	return RequestInvalid{InvalidArgument{&Error{
		Code:       codes.InvalidArgument,
		Message:    "the request was not sent",
		Violations: []FieldViolation{{field, err.Error()}},
		cause:      err,
	}}}
}

// detailsOf is what an error of this package has in it.
func detailsOf(err error) *Error {
	var found *Error
	if errors.As(err, &found) {
		return found
	}
	return &Error{Code: codes.Unknown, Message: err.Error(), cause: err}
}
