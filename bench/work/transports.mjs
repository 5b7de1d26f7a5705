/**
 * GET over HTTP/2 connections without TLS, and GET over new TLS connections that resume a session.
 */
import { spawnSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { connect as connectHttp2 } from "node:http2";
import { join } from "node:path";
import { connect as connectTls } from "node:tls";
import { fileURLToPath } from "node:url";
import { bareProgram } from "../peers/programs.mjs";
import { httpRequest } from "../support/load.mjs";
import { agentgatewayRoute, gatewayRoute } from "./config.mjs";

const BACKEND = fileURLToPath(new URL("../http/backend.mjs", import.meta.url));
const BARE_HTTP2 = fileURLToPath(new URL("../bare/http2.mjs", import.meta.url));
const BARE_TLS = fileURLToPath(new URL("../bare/tls.mjs", import.meta.url));
const HTTP2_CONNECTIONS = 4;
const HTTP2_STREAMS = 8;
const TLS_CONNECTIONS = 8;
/** After 1,500 connections, V8 still compiled: a connection cost 1.6 times as much as after 3,500. */
const TLS_WARM_UP = 4000;

const hostOf = ({ backendPort }) => ({ host: `127.0.0.1:${backendPort}` });

const HTTP2 = {
  title: `GET over HTTP/2, ${HTTP2_CONNECTIONS} connections, ${HTTP2_CONNECTIONS * HTTP2_STREAMS} streams`,
  backends: { backendPort: [BACKEND] },
  configure: {
    gateway: (place) => gatewayRoute({ port: place.port, backend: hostOf(place) }),
    bare: ({ port, backendPort }) => bareProgram(BARE_HTTP2, port, backendPort),
    // By default, it sends requests to the backend with the client's HTTP version.
    agentgateway: (place) =>
      agentgatewayRoute({
        port: place.port,
        backend: { ...hostOf(place), policies: { http: { version: "HTTP/1.1" } } },
      }),
    envoy: (place, program) => program.configure({ of: "http", ...place }),
    nginx: (place, program) =>
      program.configure(place).replace(`listen 127.0.0.1:${place.port}`, `listen 127.0.0.1:${place.port} http2`),
    haproxy: (place, program) =>
      program.configure(place).replace(`bind 127.0.0.1:${place.port}`, `bind 127.0.0.1:${place.port} proto h2`),
  },
  run: getOverHttp2,
  perRound: 3000,
  warmUp: 12_000,
};

async function getOverHttp2({ port }, count) {
  const headers = { ":path": "/", authorization: `Bearer ${"b".repeat(600)}`, "user-agent": "bench/1.0" };
  let begun = 0;
  let errors = 0;
  const sessions = Array.from({ length: HTTP2_CONNECTIONS }, () => connectHttp2(`http://127.0.0.1:${port}`));
  const get = (session) =>
    new Promise((resolve) => {
      const stream = session.request(headers);
      let status = 0;
      stream.on("response", (response) => {
        status = response[":status"];
      });
      stream.on("error", () => undefined);
      stream.on("close", () => {
        if (status !== 200) errors += 1;
        resolve();
      });
      stream.resume();
    });
  const work = sessions.flatMap((session) => {
    session.on("error", () => undefined);
    return Array.from({ length: HTTP2_STREAMS }, async () => {
      while (begun < count) {
        begun += 1;
        await get(session);
      }
    });
  });
  await Promise.all(work);
  for (const session of sessions) session.close();
  return errors;
}

/** A certificate for all programs, in the folder of the run. haproxy reads certificate and key from one file. */
function certificateOf(folder) {
  const [cert, key, both] = ["cert.pem", "key.pem", "both.pem"].map((name) => join(folder, name));
  const args = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"];
  spawnSync("openssl", [...args, "-subj", "/CN=bench.local", "-keyout", key, "-out", cert], { stdio: "ignore" });
  writeFileSync(both, readFileSync(cert, "utf8") + readFileSync(key, "utf8"));
  return { cert, key, both };
}

let certificate;
const tlsOf = ({ folder }) => {
  if (!certificate?.cert.startsWith(folder)) certificate = certificateOf(folder);
  return certificate;
};

const TLS = {
  title: "GET over a new TLS connection that resumes a session",
  backends: { backendPort: [BACKEND] },
  configure: {
    gateway: (place) => {
      const { cert, key } = tlsOf(place);
      return gatewayRoute({
        port: place.port,
        backend: hostOf(place),
        listener: { protocol: "HTTPS", tls: { cert, key } },
      });
    },
    bare: (place) => {
      const { cert, key } = tlsOf(place);
      return bareProgram(BARE_TLS, place.port, place.backendPort, cert, key);
    },
    agentgateway: (place) => {
      const { cert, key } = tlsOf(place);
      return agentgatewayRoute({
        port: place.port,
        backend: hostOf(place),
        listener: { protocol: "HTTPS", tls: { cert, key } },
      });
    },
    envoy: (place, program) => {
      const { cert, key } = tlsOf(place);
      const config = JSON.parse(program.configure({ of: "http", ...place }));
      config.static_resources.listeners[0].filter_chains[0].transport_socket = {
        name: "tls",
        typed_config: {
          "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext",
          common_tls_context: {
            tls_certificates: [{ certificate_chain: { filename: cert }, private_key: { filename: key } }],
          },
        },
      };
      return JSON.stringify(config);
    },
    nginx: (place, program) => {
      const { cert, key } = tlsOf(place);
      const listen = `listen 127.0.0.1:${place.port}`;
      const tls = `${listen} ssl; ssl_protocols TLSv1.3; ssl_certificate ${cert}; ssl_certificate_key ${key}`;
      return program.configure(place).replace(listen, tls);
    },
    haproxy: (place, program) => {
      const bind = `bind 127.0.0.1:${place.port}`;
      return program.configure(place).replace(bind, `${bind} ssl crt ${tlsOf(place).both}`);
    },
  },
  run: getOverTls,
  notes: (contestants) =>
    contestants
      .filter(({ handshakes: { all, resumed } }) => resumed < all * 0.95)
      .map(
        ({ name, handshakes: { all, resumed } }) =>
          `${name} resumed ${((resumed / all) * 100).toFixed(0)}% of the TLS sessions.`,
      ),
  perRound: 300,
  warmUp: TLS_WARM_UP,
};

const TLS_REQUEST = httpRequest({ headers: { connection: "close", authorization: `Bearer ${"b".repeat(600)}` } });

/** Uses each ticket once, as browsers do, and the last one again if a server sends too few. */
async function getOverTls(contestant, count) {
  contestant.tickets ??= [];
  contestant.handshakes ??= { all: 0, resumed: 0 };
  const { port, tickets, handshakes } = contestant;
  let begun = 0;
  let errors = 0;
  const get = () =>
    new Promise((resolve) => {
      const session = tickets.length > 1 ? tickets.pop() : tickets[0];
      const socket = connectTls({ port, host: "127.0.0.1", rejectUnauthorized: false, session });
      let received = "";
      socket.on("session", (ticket) => {
        tickets.unshift(ticket);
        tickets.length = Math.min(tickets.length, TLS_CONNECTIONS);
      });
      socket.on("secureConnect", () => {
        handshakes.all += 1;
        if (socket.isSessionReused()) handshakes.resumed += 1;
        socket.write(TLS_REQUEST);
      });
      socket.on("data", (chunk) => {
        received += chunk.latin1Slice();
      });
      socket.on("error", () => undefined);
      socket.on("close", () => {
        if (!received.startsWith("HTTP/1.1 200")) errors += 1;
        resolve();
      });
    });
  const loops = Array.from({ length: TLS_CONNECTIONS }, async () => {
    while (begun < count) {
      begun += 1;
      await get();
    }
  });
  await Promise.all(loops);
  return errors;
}

export const TRANSPORTS = [HTTP2, TLS];
