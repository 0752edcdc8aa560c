"""Detection on data nobody here made: NAB, SKAB, TCPD, occupancy, water flow; ours beside peers and controls."""
