"""What a replica loads when it joins is read while its trainer is imported."""
