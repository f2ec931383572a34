"""Drawing codes one by one, and stopping when told to."""
