package entracte

import (
	"slices"
	"strings"
)

// Fold folds chunks into text, steps and usage, for showing a run while it goes on.
//
// Feed it every chunk in order with [Fold.Add]. It looks at the run's own agent only, and drops what a new attempt
// of a step made void. It knows what it was fed: of a run that is followed from its middle, only that part. The
// zero value is ready to use.
type Fold struct {
	steps  []*foldedStep // by number
	finish *FinishChunk
	err    *RunError
}

type foldedStep struct {
	result        StepResult
	attempt       int
	texts         strings.Builder
	thoughts      strings.Builder
	object        JSON
	isObjectValid bool
}

func (s *foldedStep) read() StepResult {
	result := s.result
	result.Text = s.texts.String()
	result.ReasoningText = s.thoughts.String()
	result.ToolCalls = slices.Clone(result.ToolCalls)
	result.ToolResults = slices.Clone(result.ToolResults)
	return result
}

// Finish is how the run parked or ended; nil while it goes on.
func (f *Fold) Finish() *FinishChunk { return f.finish }

// Error is why the run failed; nil otherwise.
func (f *Fold) Error() *RunError { return f.err }

// Text is the text of all steps so far, drafts left out.
func (f *Fold) Text() string {
	var text strings.Builder
	for _, step := range f.steps {
		if !step.result.IsDraft {
			text.WriteString(step.texts.String())
		}
	}
	return text.String()
}

// Object is the structured output as far as it has come: in part while the model writes it, at last validated.
// There is none where the last step has none.
func (f *Fold) Object() JSON {
	if len(f.steps) == 0 || f.steps[len(f.steps)-1].result.IsDraft {
		return ""
	}
	return f.steps[len(f.steps)-1].object
}

// Steps are the steps so far, the last one perhaps in progress.
func (f *Fold) Steps() []StepResult {
	return mapped(f.steps, (*foldedStep).read)
}

// Usage is tokens of the run, as of its last FinishChunk.
func (f *Fold) Usage() Usage {
	if f.finish == nil {
		return Usage{}
	}
	return f.finish.Usage
}

// Add takes in the next chunk. It returns the step that it ended, nil if it ended none.
func (f *Fold) Add(chunk Chunk) *StepResult {
	header := chunk.Header()
	if len(header.AgentPath) > 0 {
		return nil
	}
	if finish, is := chunk.(*FinishChunk); is {
		f.finish = finish
		if finish.Reason != FinishReasonSuspended {
			f.end()
		}
		return nil
	}
	f.finish = nil
	switch chunk := chunk.(type) { // which begin no step
	case *ErrorChunk:
		f.err = &chunk.Failure
		return nil
	case *AbortChunk:
		return nil
	}
	if header.Step == 0 {
		return nil
	}
	step := f.step(header.Step, header.Attempt)
	if step == nil {
		return nil
	}
	return step.add(chunk)
}

// step is the step that an attempt belongs to, made anew for a higher one; nil for one that is void.
func (f *Fold) step(number, attempt int) *foldedStep {
	i, found := slices.BinarySearchFunc(f.steps, number, func(step *foldedStep, n int) int { return step.result.Step - n })
	if found && attempt < f.steps[i].attempt {
		return nil
	}
	if found && attempt == f.steps[i].attempt {
		return f.steps[i]
	}
	fresh := &foldedStep{result: StepResult{Step: number}, attempt: attempt}
	if found {
		f.steps[i] = fresh
	} else {
		f.steps = slices.Insert(f.steps, i, fresh)
	}
	return fresh
}

// end drops what is left of an object in a step that was cut: it never was one.
func (f *Fold) end() {
	for _, step := range f.steps {
		if !step.isObjectValid {
			step.object = ""
		}
	}
}

func (s *foldedStep) add(chunk Chunk) *StepResult {
	switch chunk := chunk.(type) {
	case *TextDeltaChunk:
		s.texts.WriteString(chunk.Text)
	case *ReasoningDeltaChunk:
		s.thoughts.WriteString(chunk.Text)
	case *ToolCallChunk:
		s.result.ToolCalls = append(s.result.ToolCalls, chunk)
	case *ToolResultChunk:
		s.result.ToolResults = append(s.result.ToolResults, chunk)
	case *ObjectChunk:
		s.object = chunk.Object
	case *ObjectResultChunk:
		s.object, s.isObjectValid = chunk.Object, true
	case *TripwireChunk:
		s.result.Tripwire = &chunk.Tripwire
	case *IsTaskCompleteChunk:
		s.result.IsDraft = !chunk.Passed && !chunk.EndsRun
	case *StepFinishChunk:
		s.result.FinishReason = chunk.Reason
		s.result.Usage = chunk.Usage
		if !s.isObjectValid {
			s.object = ""
		}
		return new(s.read())
	}
	return nil
}
