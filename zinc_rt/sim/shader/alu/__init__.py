"""Instructions that compute: vector, scalar, matrix, and data from lane to lane."""
