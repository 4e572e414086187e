"""Do the data identify the memberships? Certificates, conditions, bounds and a verdict."""
