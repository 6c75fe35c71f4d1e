"""States of trainers as bytes: nested values and arrays, as front ends and options store them."""
