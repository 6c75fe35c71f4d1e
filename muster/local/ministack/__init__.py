"""MiniStack, hosted in the process of the service. Everything private of it that is touched is touched here."""
