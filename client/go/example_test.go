package entracte_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"entracte.dev/go"
)

func Example() {
	ctx := context.Background()
	client, err := entracte.NewClient(shared.address)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	for chunk, err := range client.Agent("play").Stream(ctx, entracte.Text("Hello")) {
		if err != nil {
			fmt.Println(err)
			return
		}
		switch chunk := chunk.(type) {
		case *entracte.TextDeltaChunk:
			fmt.Println(chunk.Text)
		case *entracte.FinishChunk:
			fmt.Println(chunk.Reason)
		}
	}
	// Output:
	// Hello
	// stop
}

func ExampleAgent_Approve() {
	ctx := context.Background()
	client, err := entracte.NewClient(shared.address)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	agent := client.Agent("support")
	result, err := agent.Generate(ctx, entracte.Text("My kettle arrived broken"))
	for err == nil && len(result.PendingCalls) > 0 {
		call := result.PendingCalls[0]
		switch call.Kind {
		case entracte.KindApproval:
			fmt.Println("May I?", call.ToolName, call.Args)
			result, err = agent.Approve(ctx, call)
		case entracte.KindSuspension:
			fmt.Println("Which order?")
			result, err = agent.Resume(ctx, call, "7")
		default:
			result, err = agent.Decline(ctx, call, "nobody can answer this here")
		}
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(result.FinishReason)
	// Output:
	// Which order?
	// May I? refund {"order_id":"7","amount_cents":12900}
	// stop
}

func TestExampleProgram(t *testing.T) {
	ctx, _ := connect(t, shared.address)
	program := exec.CommandContext(ctx, "go", "-C", "../../examples/client/go", "run", ".", shared.address, "close my account")
	program.Stderr = os.Stderr
	said, err := program.Output()
	if err != nil || !strings.Contains(string(said), "The account of Ada is closed.") {
		t.Errorf("the example ends with %v and says:\n%s", err, said)
	}
}
