"""What can execute a StepPlan on a device."""
