"""Jobs in places: which one an attempt gets, and how it is launched, found and stopped there."""
