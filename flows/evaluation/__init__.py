"""`paano evaluate`: the TSB-AD protocol on labelled files, and injected faults on unlabelled history."""
