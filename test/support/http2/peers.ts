import {
  type ClientHttp2Session,
  connect,
  createSecureServer,
  createServer,
  type Http2Server,
  type IncomingHttpHeaders,
  type OutgoingHttpHeaders,
  type ServerHttp2Stream,
} from "node:http2";
import type { AddressInfo } from "node:net";
import type { TestContext } from "node:test";
import { certificates } from "../tls/certificates.ts";

export const files = {
  "root.pem": certificates.root,
  "server.pem": certificates.server.cert,
  "server.key.pem": certificates.server.key,
};
export const TLS = "protocol: HTTPS, tls: { cert: server.pem, key: server.key.pem }";

export interface Answer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly trailers: IncomingHttpHeaders;
  readonly body: string;
}

export function session(t: TestContext, port: number, scheme: "http" | "https" = "http"): ClientHttp2Session {
  const client = connect(`${scheme}://localhost:${port}`, {
    ca: certificates.root,
    // From Node 24 on what waits to be sent counts.
    maxSessionMemory: 100,
  });
  client.on("error", () => undefined);
  t.after(() => client.destroy());
  return client;
}

export function ask(client: ClientHttp2Session, headers: OutgoingHttpHeaders, body?: string | Buffer): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const stream = client.request(headers, { endStream: body === undefined });
    let answer: Omit<Answer, "body" | "trailers"> | undefined;
    let trailers: IncomingHttpHeaders = {};
    const chunks: Buffer[] = [];
    stream.on("response", (fields) => {
      answer = { status: Number(fields[":status"]), headers: fields };
    });
    stream.on("trailers", (fields) => {
      trailers = fields;
    });
    stream.on("data", (chunk: Buffer) => chunks.push(chunk));
    stream.on("error", reject);
    stream.on("close", () =>
      answer === undefined
        ? reject(new Error(`no answer, code ${stream.rstCode}`))
        : resolve({ ...answer, trailers, body: Buffer.concat(chunks).toString() }),
    );
    if (body !== undefined) stream.end(body);
  });
}

export async function http2Backend(
  t: TestContext,
  answer: (stream: ServerHttp2Stream, headers: IncomingHttpHeaders) => void,
  isSecure = false,
): Promise<{ port: number; server: Http2Server; sessions: () => number }> {
  const server = isSecure ? createSecureServer(certificates.server) : createServer();
  let sessions = 0;
  server.on("session", () => {
    sessions += 1;
  });
  server.on("stream", answer);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => server.close());
  return { port: (server.address() as AddressInfo).port, server, sessions: () => sessions };
}

export const yamlOf = (listener: string, backend: string, policies = ""): string =>
  `gateways: { default: { port: 0${listener === "" ? "" : `, ${listener}`} } }
routes: [{ backends: [{ ${backend} }]${policies === "" ? "" : `, policies: { ${policies} }`} }]
`;
