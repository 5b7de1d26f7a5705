/**
 * A gateway as a forward proxy: CONNECT tunnels and absolute-form requests, with policies, and without a way to addresses
 * that are not public.
 */
import assert from "node:assert/strict";
import { connect as connectHttp2 } from "node:http2";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { networkInterfaces } from "node:os";
import { type TestContext, test } from "node:test";
import { connect as connectTls, createServer as createTlsServer } from "node:tls";
import { startGateway } from "../support/gateway.ts";
import { backendFor, gatewayFor } from "../support/scenario.ts";
import { certificates } from "../support/tls/certificates.ts";

/** Sends the text, and resolves with everything that is received until the connection closes. */
function exchange(port: number, text: string, more?: string): Promise<string> {
  return new Promise((resolve) => {
    const socket: Socket = connect({ host: "127.0.0.1", port });
    let received = "";
    let hasSentMore = more === undefined;
    socket.on("data", (chunk: Buffer) => {
      received += chunk.toString("latin1");
      if (hasSentMore || !received.includes("\r\n\r\n")) return;
      hasSentMore = true;
      socket.write(more ?? "");
    });
    socket.on("error", () => undefined);
    socket.on("close", () => resolve(received));
    socket.write(text);
  });
}

const tunnel = (port: number, authority: string, headers = "", more?: string): Promise<string> =>
  exchange(port, `CONNECT ${authority} HTTP/1.1\r\nHost: ${authority}\r\n${headers}\r\n`, more);
const absolute = (port: number, authority: string, path = "/", headers = ""): Promise<string> =>
  exchange(
    port,
    `GET http://${authority}${path} HTTP/1.1\r\nHost: ${authority}\r\nConnection: close\r\n${headers}\r\n`,
  );
/** The first byte of a TLS record with a handshake. */
const TLS_HANDSHAKE = 0x16;
const statusOf = (text: string): number => Number(/^HTTP\/1\.1 (\d+) /.exec(text)?.[1] ?? 0);

/** Echoes the first bytes of each connection in upper case, and closes it. */
async function echo(t: TestContext): Promise<{ port: number; connections: () => number }> {
  let connections = 0;
  const server = createServer((socket) => {
    connections += 1;
    socket.on("error", () => undefined);
    socket.once("data", (chunk: Buffer) => socket.end(chunk.toString().toUpperCase()));
  });
  await new Promise<void>((resolve) => server.listen(0, "::", resolve));
  t.after(() => server.close());
  return { port: (server.address() as AddressInfo).port, connections: () => connections };
}

const proxyOf = (backend: string, route = ""): string =>
  `gateways: { default: { port: 0, address: 127.0.0.1, forwardProxy: true } }
routes: [{ backends: [{ dynamic: ${backend} }]${route} }]
`;

test("CONNECT opens a tunnel in both directions", async (t) => {
  const { port } = await echo(t);
  const gateway = await gatewayFor(t, proxyOf(`{ ports: [${port}], allow: [127.0.0.0/8] }`));
  const text = await tunnel(gateway.port(), `127.0.0.1:${port}`, "", "hello");
  assert.match(text, /^HTTP\/1\.1 200 OK\r\n(?:[a-z-]+: [^\r]*\r\n)*\r\nHELLO$/);
  assert.doesNotMatch(text, /content-length|transfer-encoding/);
  const early = await exchange(
    gateway.port(),
    `CONNECT 127.0.0.1:${port} HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\n\r\nearly`,
  );
  assert.match(early, /\r\n\r\nEARLY$/);
  assert.match(await gateway.logged("method=CONNECT"), new RegExp(`host=127\\.0\\.0\\.1:${port} path=/ status=200`));
});

test("TLS works inside of a tunnel", async (t) => {
  const server = createTlsServer(certificates.server, (socket) => socket.end("secret"));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => server.close());
  const { port } = server.address() as AddressInfo;
  const gateway = await gatewayFor(t, proxyOf(`{ ports: [${port}], allow: [127.0.0.1] }`));
  const socket = connect({ host: "127.0.0.1", port: gateway.port() });
  socket.write(`CONNECT localhost:${port} HTTP/1.1\r\nHost: localhost:${port}\r\n\r\n`);
  await new Promise((resolve) => socket.once("data", resolve));
  const text = await new Promise<string>((resolve, reject) => {
    const secured = connectTls({ socket, servername: "localhost", ca: certificates.root });
    let received = "";
    secured.on("data", (chunk: Buffer) => {
      received += String(chunk);
    });
    secured.once("error", reject);
    secured.once("close", () => resolve(received));
  });
  assert.equal(text, "secret");
});

test("absolute-form requests reach the named host, without the client's address and proxy credentials", async (t) => {
  const backend = await backendFor(t, (request, response) =>
    response.end(JSON.stringify({ url: request.url, headers: request.headers })),
  );
  const port = Number(backend.host.split(":")[1]);
  const gateway = await gatewayFor(t, proxyOf(`{ ports: [${port}], allow: [127.0.0.1, "::1"] }`));
  const text = await absolute(
    gateway.port(),
    `localhost:${port}`,
    "/a?b=c",
    "Proxy-Authorization: Basic x\r\nAuthorization: Bearer own\r\n",
  );
  assert.equal(statusOf(text), 200);
  const { url, headers } = JSON.parse(/\{.*\}/s.exec(text)?.[0] ?? "{}") as {
    url: string;
    headers: Record<string, string>;
  };
  assert.equal(url, "/a?b=c");
  assert.deepEqual(
    [headers.host, headers.authorization, headers["proxy-authorization"], headers["x-forwarded-for"]],
    [`localhost:${port}`, "Bearer own", undefined, undefined],
  );
});

test("a client that names an https URL reaches the server with TLS", async (t) => {
  const server = createTlsServer(certificates.server, (socket) => {
    socket.once("data", (chunk: Buffer) => {
      const [seen = ""] = String(chunk).split("\r\n");
      socket.end(`HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: ${seen.length}\r\n\r\n${seen}`);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => server.close());
  const { port } = server.address() as AddressInfo;
  const gateway = await gatewayFor(
    t,
    proxyOf(`{ ports: [${port}], allow: [127.0.0.1, "::1"] }`, ", policies: { backendTLS: { root: ca.pem } }"),
    { files: { "ca.pem": certificates.root } },
  );
  for (const scheme of ["https", "HTTPS", "hTTpS"]) {
    const text = await exchange(
      gateway.port(),
      `GET ${scheme}://localhost:${port}/a HTTP/1.1\r\nHost: localhost:${port}\r\nConnection: close\r\n\r\n`,
    );
    assert.match(text, /GET \/a HTTP\/1\.1$/);
  }
});

test("a request for an https URL is never sent in plain text, over HTTP/1.1 and HTTP/2", async (t) => {
  const received: Buffer[] = [];
  const server = createServer((socket) => {
    socket.on("error", () => undefined);
    socket.on("data", (chunk: Buffer) => {
      received.push(chunk);
      socket.end("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => server.close());
  const { port } = server.address() as AddressInfo;
  const gateway = await gatewayFor(t, proxyOf(`{ ports: [80, ${port}], allow: [127.0.0.1, "::1"] }`));
  const headers = "Connection: close\r\nAuthorization: Bearer user-token\r\n\r\n";
  const authority = `localhost:${port}`;
  const plain = await exchange(gateway.port(), `GET http://${authority}/ HTTP/1.1\r\nHost: ${authority}\r\n${headers}`);
  assert.equal(statusOf(plain), 200);
  // An `http` URL of the same host uses another pool.
  received.length = 0;
  const text = await exchange(gateway.port(), `GET https://${authority}/ HTTP/1.1\r\nHost: ${authority}\r\n${headers}`);
  assert.equal(statusOf(text), 502);
  const session = connectHttp2(`http://127.0.0.1:${gateway.port()}`);
  t.after(() => session.destroy());
  const status = await new Promise((resolve, reject) => {
    const stream = session.request({ ":scheme": "https", ":authority": authority, authorization: "Bearer user-token" });
    stream.on("response", (head) => resolve(head[":status"]));
    stream.on("error", reject);
  });
  assert.equal(status, 502);
  assert.equal(received.length, 2);
  for (const chunk of received) {
    assert.equal(chunk[0], TLS_HANDSHAKE);
    assert.ok(!chunk.includes("user-token"));
  }
  // Without a port, the URL names port 443.
  const other = await exchange(gateway.port(), `GET https://localhost/ HTTP/1.1\r\nHost: localhost\r\n${headers}`);
  assert.equal(statusOf(other), 403);
  await gateway.logged("the port 443 is not in");
});

test("policies and routes apply to the host, the method, and the user", async (t) => {
  const { port, connections } = await echo(t);
  const gateway = await gatewayFor(
    t,
    `gateways: { default: { port: 0, address: 127.0.0.1, forwardProxy: true } }
routes:
  - name: allowed
    hostnames: [localhost]
    policies:
      basicAuth: { htpasswd: "ann:{SHA}fEqNCco3Yq9h5ZUglD3CZJT4lBs=", location: { header: { name: proxy-authorization, prefix: "Basic " } } }
      authorization: { rules: ['basicAuth.username == "ann" && request.method == "CONNECT"'] }
    backends: [{ dynamic: { ports: [${port}], allow: [127.0.0.1, "::1"] } }]
  - name: other
    hostnames: [plain.test]
    backends: [{ host: 127.0.0.1:1 }]
`,
  );
  const credential = `Proxy-Authorization: Basic ${Buffer.from("ann:123456").toString("base64")}\r\n`;
  assert.match(await tunnel(gateway.port(), `localhost:${port}`, credential, "hi"), /HI$/);
  const anonymous = await tunnel(gateway.port(), `localhost:${port}`, "Connection: close\r\n");
  assert.equal(statusOf(anonymous), 407);
  assert.match(anonymous, /proxy-authenticate: Basic realm="gateway"/);
  assert.equal(statusOf(await absolute(gateway.port(), `localhost:${port}`, "/", credential)), 403);
  assert.equal(statusOf(await tunnel(gateway.port(), `evil.test:${port}`, `Connection: close\r\n${credential}`)), 404);
  assert.equal(statusOf(await tunnel(gateway.port(), "plain.test:443", "Connection: close\r\n")), 405);
  assert.equal(connections(), 1);
});

for (const [name, head] of [
  ["no port", "CONNECT localhost HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"],
  ["another Host header", "CONNECT localhost:443 HTTP/1.1\r\nHost: other:443\r\nConnection: close\r\n\r\n"],
  [
    "a body",
    "CONNECT localhost:443 HTTP/1.1\r\nHost: localhost:443\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx",
  ],
  ["HTTP/1.0", "CONNECT localhost:443 HTTP/1.0\r\nHost: localhost:443\r\n\r\n"],
] as const) {
  test(`CONNECT with ${name} is rejected with 400`, async (t) => {
    const gateway = await gatewayFor(t, proxyOf("{}"));
    assert.equal(statusOf(await exchange(gateway.port(), head)), 400);
  });
}

test("a gateway that is no forward proxy rejects CONNECT and dynamic backends", async (t) => {
  const gateway = await gatewayFor(
    t,
    "gateways: { a: { port: 0 } }\nroutes: [{ backends: [{ host: 127.0.0.1:1 }] }]\n",
  );
  const refused = await tunnel(gateway.port(), "example.com:443", "Connection: close\r\n");
  assert.equal(statusOf(refused), 405);
  const yaml = "gateways: { a: { port: 0 } }\nroutes: [{ backends: [{ dynamic: {} }] }]\n";
  await assert.rejects(startGateway(yaml), /dynamic: the gateway "a" is not a forward proxy/);
});

test("ports that are not listed are refused", async (t) => {
  const { port, connections } = await echo(t);
  const gateway = await gatewayFor(t, proxyOf("{ allow: [127.0.0.0/8] }"));
  assert.equal(statusOf(await tunnel(gateway.port(), `127.0.0.1:${port}`, "Connection: close\r\n")), 403);
  assert.equal(statusOf(await absolute(gateway.port(), `127.0.0.1:${port}`)), 403);
  assert.equal(connections(), 0);
});

/** Ways to write an IPv4 address that some resolver or parser accepts. */
function spellings(address: string): string[] {
  const bytes = address.split(".").map(Number);
  const [a = 0, b = 0, c = 0, d = 0] = bytes;
  const number = ((a << 24) | (b << 16) | (c << 8) | d) >>> 0;
  const hex = (value: number): string => value.toString(16);
  const octal = (value: number): string => `0${value.toString(8)}`;
  const high = hex((a << 8) | b);
  const low = hex((c << 8) | d);
  return [
    address,
    `${address}.`,
    `${address}..`,
    String(number),
    `${number}.`,
    `0x${hex(number)}`,
    `0X${hex(number).toUpperCase()}`,
    `0${number.toString(8)}`,
    bytes.map(octal).join("."),
    bytes.map((one) => `0x${hex(one)}`).join("."),
    bytes.map((one) => String(one).padStart(3, "0")).join("."),
    bytes.map((one, i) => (i % 2 === 0 ? octal(one) : `0x${hex(one)}`)).join("."),
    `${a}.${(b << 16) | (c << 8) | d}`,
    `${a}.${b}.${(c << 8) | d}`,
    `0x${hex(a)}.${(b << 16) | (c << 8) | d}`,
    `${bytes.slice(0, 3).join(".")}.${d + 256}`,
    `[::ffff:${address}]`,
    `[::FFFF:${address}]`,
    `[::ffff:${high}:${low}]`,
    `[0:0:0:0:0:ffff:${high}:${low}]`,
    `[0000:0000:0000:0000:0000:FFFF:${high}:${low}]`,
    `[::${address}]`,
    `[::${high}:${low}]`,
    `[64:ff9b::${address}]`,
    `[64:ff9b::${high}:${low}]`,
    `[64:ff9b:1::${high}:${low}]`,
    `[2002:${high}:${low}::]`,
    `[2002:${high}:${low}::1]`,
    `[2001:0:1:2:3:4:${hex(~((a << 8) | b) & 0xffff)}:${hex(~((c << 8) | d) & 0xffff)}]`,
    `[64:ff9b:1:${high}:${hex(c)}:${hex(d << 8)}:808:808]`,
    `[2606:4700::5efe:${high}:${low}]`,
    `[2606:4700::200:5efe:${address}]`,
    `[::ffff:0:${address}]`,
    `[::ffff:${address}%25lo]`,
    `[${address}]`,
    `[[::ffff:${address}]]`,
    `::ffff:${address}`,
    `[::ffff:${address}].`,
    `${a}.${b}.${c}.0x${hex(d)}`,
    `${a}.${b}.${c}.${octal(d)}`,
    `+${address}`,
    `-${address}`,
    `${address},8.8.8.8`,
    ` ${address}`,
    `${address}\t`,
    `user:password@${address}`,
    `example.com@${address}`,
    `${address}#@example.com`,
    `${address}?@example.com`,
    `${address}/@example.com`,
    `%3${a % 10}${address.slice(1)}`,
    [...address].map((char) => (char === "." ? "\u3002" : String.fromCodePoint(char.charCodeAt(0) + 0xfee0))).join(""),
    address.replaceAll(".", "\uff0e"),
    `user@${address}`,
    `${address}%00`,
    `${address}%2e`,
    `①②⑦.⓪.⓪.①`,
    `${address}\\@example.com`,
  ];
}

test("no spelling of a local, private, or metadata address is reached", async (t) => {
  const { port, connections } = await echo(t);
  const own = Object.values(networkInterfaces())
    .flatMap((list) => list ?? [])
    .map(({ address, family, scopeid }) => (family === "IPv6" && scopeid ? `[${address}%25eth0]` : address));
  const ipv4 = ["127.0.0.1", "127.255.255.254", "0.0.0.0", "169.254.169.254", "10.0.0.1", "172.16.0.1", "192.168.0.1"];
  const more = [
    "100.64.0.1",
    "198.18.0.1",
    "239.255.255.250",
    "240.0.0.1",
    "0.1.2.3",
    "100.100.100.200",
    "168.63.129.16",
    "192.0.0.192",
    "224.0.0.1",
    "255.255.255.255",
  ];
  const hosts = [
    ...[...ipv4, ...more, ...own.filter((one) => !one.includes(":"))].flatMap(spellings),
    ...own.filter((one) => one.includes(":")).map((one) => (one.startsWith("[") ? one : `[${one}]`)),
    "localhost",
    "LOCALHOST",
    "localhost.",
    "ip6-localhost",
    "foo.localhost",
    "[::1]",
    "[::]",
    "[0:0:0:0:0:0:0:1]",
    "[::0001]",
    "[::1%25lo]",
    "[::1%lo]",
    "[fe80::1]",
    "[fe80::1%25eth0]",
    "[fec0::1]",
    "[fc00::1]",
    "[fd00:ec2::254]",
    "[ff02::1]",
  ];
  const gateway = await gatewayFor(t, proxyOf(`{ ports: [${port}] }`));
  for (const host of new Set(hosts)) {
    for (const text of [
      await tunnel(gateway.port(), `${host}:${port}`, "Connection: close\r\n"),
      await absolute(gateway.port(), `${host}:${port}`),
    ]) {
      const status = statusOf(text);
      assert.ok(status === 400 || status === 403 || status === 502, `${host}: ${text.split("\r\n")[0]}`);
      // Only a name that does not resolve is not refused.
      if (status === 502) assert.match(host, /^(?:ip6-localhost|foo\.localhost)$/);
    }
  }
  assert.equal(connections(), 0);
});

test("a TLS gateway forwards to the server that the client names, unless its address is not public", async (t) => {
  const server = createTlsServer(certificates.server, (socket) => socket.end("secret"));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => server.close());
  const { port } = server.address() as AddressInfo;
  const yaml = (allow: string): string => `gateways: { egress: { port: 0, protocol: TLS } }
tcpRoutes: [{ hostnames: [localhost], backends: [{ dynamic: { port: ${port}, allow: ${allow} } }] }]
`;
  const ask = (at: number): Promise<string> =>
    new Promise((resolve) => {
      const socket = connectTls({ host: "127.0.0.1", port: at, servername: "localhost", rejectUnauthorized: false });
      let received = "";
      socket.on("data", (chunk: Buffer) => {
        received += String(chunk);
      });
      socket.on("error", () => undefined);
      socket.on("close", () => resolve(received));
    });
  const open = await gatewayFor(t, yaml('[127.0.0.1, "::1"]'));
  assert.equal(await ask(open.port()), "secret");
  const closed = await gatewayFor(t, yaml("[]"));
  assert.equal(await ask(closed.port()), "");
});
