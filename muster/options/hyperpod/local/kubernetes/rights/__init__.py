"""Who may do what: users, RBAC, the access policies of EKS, and what a user may grant to others."""
