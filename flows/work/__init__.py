"""What a task does for its sensors, in plain functions that know neither Prefect nor the clock."""
