module example.org/outside

go 1.26
