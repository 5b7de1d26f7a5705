/** Hostile inputs of the readers of bodies, expressions, patterns, and what single peers send. */

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import type { Http2Stream } from "node:http2";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Readable } from "node:stream";
import { ADMIN_PATHS } from "../../../src/admin/server/paths.ts";
import { docsEndpoint, openDocsFiles } from "../../../src/admin/ui/docs.ts";
import { Owner } from "../../../src/base/owner.ts";
import { peerInput } from "../../../src/base/peer-inputs.ts";
import { linearRegex } from "../../../src/base/regex.ts";
import { compileExpression, createBudget } from "../../../src/cel/expression.ts";
import { compileComputedRegex } from "../../../src/cel/functions/regex.ts";
import { plainAttributes } from "../../../src/cel/values/attribute-source.ts";
import { BodyBuffer, readAll } from "../../../src/http/body.ts";
import { EgressGuard } from "../../../src/http/egress-guard.ts";
import { FrameReader } from "../../../src/http/h2/frame-reader.ts";
import { HeaderList } from "../../../src/http/headers.ts";
import { createLookup } from "../../../src/http/lookup.ts";
import { createClientCallback } from "../../../src/identity/login/client-callback.ts";
import { readJson } from "../../../src/json/read-json.ts";
import { apiError } from "../../../src/kubernetes/api-client.ts";
import { KINDS, keptParts } from "../../../src/kubernetes/cluster-cache.ts";
import { loadCluster } from "../../../src/kubernetes/kubeconfig.ts";
import { discoverLogin } from "../../../src/mcp/logins/oauth-client.ts";
import { ReplicaBus } from "../../../src/mcp/replicas/replica-bus.ts";
import { openRemoteServer } from "../../../src/mcp/transports/remote-server.ts";
import { checkOverHttp } from "../../../src/policies/ext-authz/http-check.ts";
import { silentLogger } from "../../../src/record/log/logger.ts";
import { takeFolderLock } from "../../../src/store/folder-lock.ts";
import { createMemoryStore } from "../../../src/store/memory-store.ts";
import { ownedStore } from "../../../src/store/owned-store.ts";
import type { SigningKey } from "../../../src/store/signing-key.ts";
import { TestBody } from "../../support/body-source.ts";
import { anExchange } from "../../support/exchange.ts";
import { fakeClock } from "../../support/fake-clock.ts";
import { fetched } from "../fetched.ts";
import { type HostileInputs, hostile, inPieces, many, mapShapes, STREAM_PIECES, together } from "../hostile.ts";
import { compressedShapes, jsonShapes, noise } from "../shapes.ts";
import { endTurn } from "../turns.ts";

const clock = fakeClock();
const anyKey: SigningKey = { sign: () => "A".repeat(43), isSignature: () => true, isGiven: true };

const bodies: Readonly<Record<string, (n: number) => Buffer>> = {
  "one body": (n) => Buffer.alloc(n, 120),
  noise: (n) => noise(n),
  zeros: (n) => Buffer.alloc(n),
  "line breaks": (n) => Buffer.alloc(n, 10),
  "beyond the limit": (n) => Buffer.alloc(9 * n, 120),
};

/** Each piece is a DATA frame. The receiver pauses after each chunk, for this number of frames. */
function readFrames(bytes: Buffer, pieceBytes: number, pausedFor: number): string {
  const stream = new Readable({ read: () => undefined, autoDestroy: false });
  const scheduled: (() => void)[] = [];
  let chunks = 0;
  let read = 0;
  let frames = 0;
  const reader = new FrameReader(
    stream as unknown as Http2Stream,
    {
      data(chunk) {
        chunks += 1;
        read += chunk.length;
        return pausedFor === 0;
      },
    },
    (action) => void scheduled.push(action),
  );
  for (const piece of inPieces(bytes, pieceBytes)) {
    stream.push(piece);
    frames += 1;
    for (const action of scheduled.splice(0)) action();
    if (frames % pausedFor === 0) reader.resume();
  }
  while (read < bytes.length) {
    reader.resume();
    reader.flush();
  }
  return `${read} bytes in ${chunks} chunks`;
}

const OK = 200;
const authorization = {
  "many headers": (n: number) => many(n, (i) => `x-${i}\nv\n`),
  "equal headers": (n: number) => many(n, () => "x-user\nv\n"),
  "one large value": (n: number) => `x-user\n${"v".repeat(n)}\n`,
  "many values": (n: number) => `x-user\n${many(n, () => "v", ",")}\n`,
  "one large name": (n: number) => `${"x".repeat(n)}\nv\n`,
};

const rule = compileExpression('json(request.body).model == "a" && request.body.contains("x")');
const textRules = [
  'request.body.contains("zzz")',
  'request.body.split(",").size() > 1',
  'request.body.matches("a+b")',
  'request.body.replace("a", "bb").size() > 1',
  'request.body.lowerAscii().startsWith("x")',
  'request.body.matches("(a*)*b")',
  'request.body.matches("[^/]+/[^/]+$")',
  'request.body.matches("(?i)x.*y")',
].map((source) => compileExpression(source));
const attributesOf = (body: string) => plainAttributes({ request: { body } });

const texts = {
  "one large text": (n: number) => "x".repeat(n),
  "almost a match": (n: number) => "a".repeat(n),
  "many matches": (n: number) => "ab".repeat(n / 2),
  separators: (n: number) => ",".repeat(n),
  "wide characters": (n: number) => "é😀".repeat(n / 3),
  "line breaks": (n: number) => "\n".repeat(n),
};
const PATTERN = peerInput("file/pattern");
const patternSources = {
  "many characters": (n: number) => "a".repeat(n),
  "nested groups": (n: number) => "(".repeat(n / 2) + ")".repeat(n / 2),
  "many choices": (n: number) => many(n, () => "a", "|"),
  "repeated repetitions": (n: number) => `${"(a{9}){9}".repeat(n / 9)}`,
  "many classes": (n: number) => "[a-z]".repeat(n / 5),
  "invalid at the end": (n: number) => `${"a".repeat(n)}(`,
};
const expressions = {
  "many operands": (n: number) => many(n, () => "request.path", " + "),
  "many conditions": (n: number) => many(n, (i) => `request.path == "${i}"`, " || "),
  "one large text": (n: number) => `request.path == "${"x".repeat(n)}"`,
  "escapes only": (n: number) => `request.path == "${"\\n".repeat(n / 2)}"`,
  "nested groups": (n: number) => "(".repeat(n / 2) + ")".repeat(n / 2),
  "nested loops": (n: number) => `${"[1].map(x, ".repeat(n / 12)}1${")".repeat(n / 12)}`,
  "one large list": (n: number) => `[${many(n, () => "1", ",")}]`,
  "equal keys": (n: number) => `{${many(n, () => '"a": 1', ",")}}`,
  "never completed text": (n: number) => `"${"x".repeat(n)}`,
  "invalid at the end": (n: number) => `${many(n, () => "request.path", " + ")} + )`,
};
const addresses = {
  "many fields": (n: number) => many(n, (i) => `name${i}=1`, "&"),
  "equal names": (n: number) => many(n, () => "a=1", "&"),
  "one large value": (n: number) => `a=${"x".repeat(n)}`,
  "escapes only": (n: number) => `a=${"%41".repeat(n / 3)}`,
  "empty fields": (n: number) => "&".repeat(n),
};

const callback = createClientCallback({
  clientId: "c",
  redirectUris: ["https://a.example/cb"],
  issuer: "https://issuer.example",
  resource: "https://g.example/mcp",
  key: anyKey,
  acceptsDocument: undefined,
  nowMs: () => 0,
} as never);

const item = (i: number): string => `{"metadata":{"name":"n${i}","namespace":"a"},"spec":{}}`;
const lists = {
  ...jsonShapes((value) => `{"metadata":{},"items":[{"metadata":{"name":"a"},"spec":{"x":${value}}}]}`),
  "many items": (n: number) => `{"items":[${many(n, item, ",")}]}`,
  "equal items": (n: number) => `{"items":[${many(n, () => item(1), ",")}]}`,
};

/** Files and folders exist only while they are read. */
function inFolder(name: string, content: string, read: (folder: string) => unknown): unknown {
  const folder = mkdtempSync(join(tmpdir(), "gateway-inputs-"));
  const end = (): void => rmSync(folder, { recursive: true, force: true });
  writeFileSync(join(folder, name), content);
  try {
    const result = read(folder);
    return result instanceof Promise ? result.finally(end) : result;
  } finally {
    if (name !== "config") end();
  }
}

const kubeconfig = (users: string): string =>
  `apiVersion: v1\ncurrent-context: a\ncontexts:\n- {name: a, context: {cluster: a, user: a}}\nclusters:\n- {name: a, cluster: {server: "https://a.example"}}\nusers:\n${users}- {name: a, user: {token: t}}\n`;

const replicaStore = () => {
  let receive: (text: string) => void = () => undefined;
  const bus = {
    hasPeers: true,
    publish: async (_channel: string, text: string) => {
      receive(text);
      return 1;
    },
    listen: (_channel: string, received: (text: string) => void) => {
      receive = received;
      return { ready: Promise.resolve(), close: () => undefined };
    },
  };
  return ownedStore({ ...createMemoryStore(clock), bus }, Owner.standalone);
};

export const requestInputs = {
  "client/request-body": together({
    "HTTP/1.1": hostile<Buffer>({
      shapes: bodies,
      async read(bytes, pieceBytes) {
        const body = new TestBody();
        const read = readAll(body, peerInput("client/request-body"));
        for (const piece of inPieces(bytes, pieceBytes)) body.push(piece);
        body.complete();
        return (await read).length;
      },
      pieces: STREAM_PIECES,
    }),
    "HTTP/2": hostile<{ readonly bytes: Buffer; readonly pausedFor: number }>({
      shapes: {
        "read at once": (n) => ({ bytes: noise(n), pausedFor: 0 }),
        "paused for some frames": (n) => ({ bytes: noise(n), pausedFor: 8 }),
        "paused until the end": (n) => ({ bytes: noise(n), pausedFor: Number.POSITIVE_INFINITY }),
      },
      read: ({ bytes, pausedFor }, pieceBytes) => readFrames(bytes, pieceBytes, pausedFor),
      pieces: STREAM_PIECES,
    }),
  }),
  "backend/response-body": hostile<Buffer>({
    shapes: bodies,
    read(bytes, pieceBytes) {
      const body = new BodyBuffer();
      for (const piece of inPieces(bytes, pieceBytes)) body.add(piece);
      return body.take().length;
    },
    pieces: STREAM_PIECES,
  }),
  "ext-authz/http-response": hostile<string>({
    shapes: authorization,
    async read(lines) {
      const fetch = async () => ({
        status: OK,
        headers: new HeaderList(lines.split("\n").slice(0, -1)),
        body: Buffer.alloc(0),
      });
      const check = {
        url: "https://a.example/",
        method: "GET",
        timeoutMs: 1,
        accepted: new Set(["x-user"]),
        metadata: [],
      };
      return (await checkOverHttp(fetch, check as never, anExchange(), new HeaderList(), [])).allowed;
    },
  }),
  "client/expression-body": hostile<string>({
    shapes: jsonShapes((value) => `{"model":"a","x":${value}}`),
    read: (body) => rule.evaluate(attributesOf(body)).ok,
  }),
  "client/expression-text": hostile<string>({
    shapes: texts,
    read: (body) =>
      textRules
        .map((one) => {
          endTurn();
          return one.evaluate(attributesOf(body)).ok;
        })
        .join(),
  }),
  "client/computed-pattern": hostile<string>({
    shapes: patternSources,
    read: (pattern) => typeof compileComputedRegex(pattern, createBudget()),
    bytes: 100,
    // The work of the RE2 library grows with the square of a literal, and a pattern has at most 512 characters.
    uncomparedSteps: 150_000,
  }),
  "file/pattern": hostile<string>({
    shapes: patternSources,
    read: (pattern) => typeof linearRegex(PATTERN, pattern),
    bytes: 100,
    uncomparedSteps: 150_000,
  }),
  "file/expression": hostile<string>({
    shapes: expressions,
    read: (source) => typeof compileExpression(source),
    bytes: 400,
  }),
  "file/server-address": hostile<string>({
    shapes: addresses,
    read(query) {
      const egress = EgressGuard.for("configuration");
      const server = openRemoteServer(
        { url: `https://a.example/mcp?${query}`, headers: {}, egress } as never,
        undefined,
      );
      server.close();
      return server.address;
    },
  }),
  "client/login-state": hostile<string>({
    shapes: {
      ...mapShapes(
        jsonShapes((value) => `["https://a.example/cb","s","",9e15,${value}]`),
        (text) => `state=${Buffer.from(text).toString("base64url")}.${"A".repeat(22)}`,
      ),
      "many parameters": (n) => many(n, (i) => `a${i}=1`, "&"),
    },
    read: (query) => callback.redirectToClient(query, false).length,
    bytes: 1_000,
  }),
  "name-server/response": hostile<readonly { address: string; family: number }[]>({
    shapes: {
      "many addresses": (n) =>
        Array.from({ length: n / 12 }, (_, i) => ({ address: `10.0.${i >> 8}.${i & 255}`, family: 4 })),
      "equal addresses": (n) => Array.from({ length: n / 12 }, () => ({ address: "10.0.0.1", family: 4 })),
      "many IPv6 addresses": (n) =>
        Array.from({ length: n / 12 }, (_, i) => ({ address: `fd00::${i.toString(16)}`, family: 6 })),
      "no addresses": () => [],
      "one large address": (n) => [{ address: "1".repeat(n), family: 4 }],
    },
    read: (addresses) =>
      new Promise((resolve, reject) =>
        createLookup(clock, (_name, done) => done(null, addresses))("a.example", { all: true }, (error, found) =>
          error ? reject(error) : resolve(found.length),
        ),
      ),
  }),
  "mcp-server/challenge": hostile<string>({
    shapes: {
      "one large challenge": (n) => `Bearer realm="${"a".repeat(n)}"`,
      "many parameters": (n) => `Bearer ${many(n, (i) => `a${i}="b"`, ", ")}`,
      "many equal parameters": (n) => `Bearer ${many(n, () => 'resource_metadata="https://mcp.example/m"', ", ")}`,
      "never completed quote": (n) => 'resource_metadata="'.repeat(n / 19),
      "one large URL": (n) => `Bearer resource_metadata="https://mcp.example/${"a".repeat(n)}"`,
      "other origin": (n) => `Bearer resource_metadata="https://${"a".repeat(n)}.example/"`,
    },
    async read(challenge) {
      const metadata = fetched(
        '{"authorization_endpoint":"https://mcp.example/a","token_endpoint":"https://mcp.example/t"}',
      );
      const fetch = async (request: { method?: string }) => {
        const response = await metadata(request as never);
        return { ...response, headers: new HeaderList(["www-authenticate", challenge]) };
      };
      return (await discoverLogin("https://mcp.example/mcp", {}, fetch as never)).server.scopes.length;
    },
  }),
  "redis/message": hostile<string>({
    shapes: jsonShapes(),
    async read(text) {
      const store = replicaStore();
      const [one, other] = [0, 1].map(() => new ReplicaBus({ clock, logger: silentLogger, store, key: anyKey }));
      let received = 0;
      other?.listen("c", (message) => {
        received += message.text?.length ?? 0;
      });
      await one?.send("c", { kind: "notified", text });
      return received;
    },
  }),
  "kubernetes-api/response": hostile<string>({
    shapes: lists,
    read: (text) =>
      (readJson(peerInput("kubernetes-api/response"), text) as { items: readonly object[] }).items.map((one) =>
        keptParts(one as never, KINDS[0] as never),
      ).length,
  }),
  "kubernetes-api/error": hostile<string>({
    shapes: jsonShapes((value) => `{"code":404,"message":"m","details":${value}}`),
    read: (text) => apiError(404, readJson(peerInput("kubernetes-api/error"), text)).message.length,
  }),
  "file/kubeconfig": hostile<string>({
    shapes: {
      "many users": (n) => kubeconfig(many(n, (i) => `- {name: u${i}, user: {token: t}}\n`)),
      "equal users": (n) => kubeconfig(many(n, () => "- {name: b, user: {token: t}}\n")),
      "one large token": (n) => kubeconfig(`- {name: b, user: {token: ${"t".repeat(n)}}}\n`),
      "flow lists": (n) => `${kubeconfig("")}x: [${many(n, () => "1", ",")}]\n`,
      comments: (n) => kubeconfig("# x\n".repeat(n / 4)),
      "invalid at the end": (n) => `${kubeconfig(many(n, (i) => `- {name: u${i}, user: {token: t}}\n`))}\t}`,
    },
    read: (text) =>
      inFolder(
        "config",
        text,
        async (folder) =>
          (
            await loadCluster(
              { kubeconfig: join(folder, "config") },
              { environment: {}, isInteractive: false, err: () => undefined },
            )
          ).server,
      ),
    bytes: 400,
  }),
  "file/store-lock": hostile<string>({
    shapes: jsonShapes((value) => `{"pid":1,"started":"x","place":${value}}`),
    read: (text) => inFolder("lock", text, (folder) => takeFolderLock(folder, clock).release()),
  }),
  "admin-client/packed-page": hostile<Buffer>({
    shapes: compressedShapes((n) => "<p>a</p>".repeat(n / 8)),
    async read(bytes) {
      const files = openDocsFiles({ names: ["index.html.gz"], read: () => bytes } as never);
      const page = await docsEndpoint(files).GET?.({ path: `${ADMIN_PATHS.docs}/index.html` } as never);
      return page !== undefined && "body" in page ? page.body.length : 0;
    },
  }),
} satisfies HostileInputs;
