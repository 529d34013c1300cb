"""How much clients, connections and replicas may use: rates over windows, and the limits of entities."""
