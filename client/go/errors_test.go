package entracte_test

import (
	"context"
	"errors"
	"net"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"entracte.dev/go"
	pb "entracte.dev/go/entracte/v1"
)

// refusing is a server that refuses to read a run with the status that its id says: CODE/REASON.
type refusing struct {
	pb.UnimplementedRunServiceServer
}

func (refusing) GetRun(_ context.Context, request *pb.GetRunRequest) (*pb.GetRunResponse, error) {
	var code codes.Code
	name, reason, _ := strings.Cut(request.RunId, "/")
	if err := code.UnmarshalJSON([]byte(`"` + name + `"`)); err != nil {
		return nil, err
	}
	refusal, err := status.New(code, "no").WithDetails(
		&errdetails.ErrorInfo{Domain: "entracte.dev", Reason: reason, Metadata: map[string]string{"run_id": "r1"}},
		&errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: "a.b", Description: "bad"}}},
		&errdetails.RetryInfo{RetryDelay: durationpb.New(90 * time.Second)},
	)
	if err != nil {
		return nil, err
	}
	return nil, refusal.Err()
}

func serveRefusals(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	pb.RegisterRunServiceServer(server, refusing{})
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return listener.Addr().String()
}

// codesOfReasons are the codes of all reasons, as the comments of the contract tell them.
func codesOfReasons(t *testing.T) map[string]string {
	t.Helper()
	contract := must(os.ReadFile("../../proto/entracte/v1/errors.proto"))(t)
	codeOf := map[string]string{}
	described := regexp.MustCompile(`  // ([A-Z_]+)\. .*\n(?:  //.*\n)*  ERROR_REASON_([A-Z_]+) = `)
	for _, found := range described.FindAllStringSubmatch(string(contract), -1) {
		codeOf[found[2]] = found[1]
	}
	return codeOf
}

func camel(reason string) string {
	var name strings.Builder
	for word := range strings.SplitSeq(reason, "_") {
		switch word {
		case "JSON", "ID":
			name.WriteString(word)
		default:
			name.WriteString(word[:1] + strings.ToLower(word[1:]))
		}
	}
	return name.String()
}

func TestEveryReasonHasItsType(t *testing.T) {
	ctx, client := connect(t, serveRefusals(t), entracte.WithReattachTimeout(time.Second))
	codeOf := codesOfReasons(t)
	for number, name := range pb.ErrorReason_name {
		reason := strings.TrimPrefix(name, "ERROR_REASON_")
		code := codeOf[reason]
		if number == 0 {
			reason, code = "NEWER_THAN_THIS", "FAILED_PRECONDITION"
		}
		if code == "" {
			t.Fatalf("the contract tells no code of %s", reason)
		}
		_, err := client.Runs.Get(ctx, code+"/"+reason)
		want := camel(reason)
		if number == 0 {
			want = "FailedPrecondition"
		}
		equal(t, "the type of "+reason, reflect.TypeOf(err).Name(), want)
		var given *entracte.Error
		if !errors.As(err, &given) {
			t.Fatalf("%s gives %v", reason, err)
		}
		equal(t, "the reason", given.Reason, reason)
		equal(t, "the metadata", given.Metadata["run_id"], "r1")
		equal(t, "the field", given.Violations[0].Field, "a.b")
		equal(t, "when to come back", given.RetryAfter, 90*time.Second)
		equal(t, "the class", reflect.TypeOf(classOf(err)).Name(), camel(code))
	}
	// A reason that does not go with its code, and a code of no class.
	_, err := client.Runs.Get(ctx, "ABORTED/RUN_NOT_FOUND")
	equal(t, "the type", reflect.TypeOf(err).Name(), "Aborted")
	_, err = client.Runs.Get(ctx, "DATA_LOSS/RUN_NOT_FOUND")
	equal(t, "the type", reflect.TypeOf(err), reflect.TypeFor[*entracte.Error]())
}

// classOf is the outermost error that has nothing but the *Error in it.
func classOf(err error) error {
	for {
		inner := errors.Unwrap(err)
		if _, is := inner.(*entracte.Error); is {
			return err
		}
		err = inner
	}
}

func TestNobodyThere(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	_ = listener.Close()
	ctx, client := connect(t, address)
	var unreachable entracte.ServerUnreachable
	if _, err := client.Runs.Get(ctx, "r1"); !errors.As(err, &unreachable) || !unreachable.Retryable() {
		t.Errorf("an address where nobody is gives %v", err)
	}
	for _, err := range client.Agent("play").Stream(ctx, entracte.Text("Hi")) {
		if !errors.As(err, &unreachable) {
			t.Errorf("an address where nobody is gives %v", err)
		}
	}
	if err := client.Close(); err != nil {
		t.Error(err)
	}
	if _, err := client.Runs.Get(ctx, "r1"); !errors.Is(err, context.Canceled) {
		t.Errorf("a closed client gives %v", err)
	}
}

func TestNewClientSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	_, err := entracte.NewClient("localhost:1", entracte.WithRootCertificates([]byte("nonsense")))
	if err == nil || !strings.Contains(err.Error(), "WithRootCertificates") {
		t.Errorf("certificates that are none give %v", err)
	}
}
