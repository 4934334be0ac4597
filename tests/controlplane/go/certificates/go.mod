module kinema.local/certificates

go 1.26.0
