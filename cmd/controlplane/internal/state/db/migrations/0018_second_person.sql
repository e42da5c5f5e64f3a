-- Requests that wait for the same request of another administrator, by a hash of the request.
CREATE TABLE second_person (
    request TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    asked_at BIGINT NOT NULL
);
