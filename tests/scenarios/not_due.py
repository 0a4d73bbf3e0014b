"""The scenarios that are not due, each with the option or the reason, and those with a test of their own."""

NOT_DUE: dict[str, str] = {}
"""By the option they are about. Options that are functions in the reference have no field yet."""

NOT_OURS = {
    "edge_models_accepted": "which classes of the reference's model library it takes; nothing was recorded",
}
"""Scenarios about the reference alone."""

OF_THEIR_OWN = {
    "ask_user_direct_no_suspend",
    "autoresume",
    "consumer_cancels",
    "isTaskComplete_never",
    "isTaskComplete_suppressFeedback",
    "late_reader_replay",
    "memory_decline",
    "memory_new_message_while_suspended",
    "memory_plain",
    "memory_suspend_resume",
    "onIterationComplete_continue_after_final",
    "onIterationComplete_feedback",
    "onIterationComplete_feedback_stop",
    "runId_reuse_while_suspended",
    "savePerStep",
    "savePerStep_midrun_false",
    "savePerStep_midrun_true",
    "savePerStep_off",
}
"""Due scenarios that are no course of calls, or one that is another here by design; each is a test in
`test_recorded_alone.py`, `test_recorded_memory.py` or `test_recorded_steering.py`."""
