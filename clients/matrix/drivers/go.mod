module matrix

go 1.24
