"""Generated stubs of the package `entracte.v1`; see proto/ for the contract."""
