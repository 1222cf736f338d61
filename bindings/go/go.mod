module txos

go 1.19
