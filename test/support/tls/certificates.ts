/**
 * Certificates for tests, signed by a root that nobody else trusts and whose key was thrown away. `server` is good
 * for localhost, 127.0.0.1 and backend.test; the keys protect nothing.
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";

const read = (name: string): string => readFileSync(join(process.cwd(), "test/support/tls", name), "utf8");

export const certificates = {
  root: read("ca.pem"),
  server: { cert: read("server.pem"), key: read("server.key.pem") },
  client: { cert: read("client.pem"), key: read("client.key.pem") },
};
