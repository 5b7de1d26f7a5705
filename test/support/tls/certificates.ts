/**
 * Certificates for tests, signed by a root whose key was deleted. `server` is valid for localhost, 127.0.0.1 and
 * backend.test.
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";

const read = (name: string): string => readFileSync(join(process.cwd(), "test/support/tls", name), "utf8");

export const certificates = {
  root: read("ca.pem"),
  server: { cert: read("server.pem"), key: read("server.key.pem") },
  client: { cert: read("client.pem"), key: read("client.key.pem") },
};
