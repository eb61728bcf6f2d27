"""What chaos is made of: cheap work, a faulty network, machines to be hurt, and the books after."""
