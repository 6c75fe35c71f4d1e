"""What the control plane reports: events, messages to people, the execution's output, the page."""
