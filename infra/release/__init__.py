"""What `make release` does with a clone, once its tests have passed. No part of an installation."""
