"""Rules decide: values in, values out; no clock, no chance, no input or output."""
