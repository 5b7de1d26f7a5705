import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { systemClock } from "../../src/base/clock.ts";
import { createSnapshot, type Snapshot } from "../../src/config/documents/snapshot.ts";
import { type Following, followController } from "../../src/kubernetes/follow-controller.ts";
import { selfSignedCertificate } from "../../src/kubernetes/self-signed-certificate.ts";
import { openSnapshotServer, type SnapshotServer } from "../../src/kubernetes/snapshot-server.ts";
import { silentLogger } from "../../src/record/log/logger.ts";
import { eventually } from "../support/eventually.ts";
import { fakeClock } from "../support/fake-clock.ts";

const ACCOUNT = "system:serviceaccount:infra:edge-gateway";
const certificate = selfSignedCertificate(["127.0.0.1"], Date.now(), 1);
const other = selfSignedCertificate(["127.0.0.1"], Date.now(), 1);
const served = { isServed: true, problems: [], failures: [] };

function snapshot(port: number, endpoints: Snapshot["endpoints"] = {}): Snapshot {
  const gateway = {
    apiVersion: "gateway.networking.k8s.io/v1",
    kind: "Gateway",
    metadata: { name: "edge", namespace: "infra" },
    spec: { listeners: [{ name: "http", port, protocol: "HTTP" }] },
  };
  return createSnapshot("infra/edge", [gateway], endpoints);
}

interface Setup {
  readonly folder: string;
  follow(more?: { certificate?: string; token?: string; clock?: ReturnType<typeof fakeClock> }): Following;
  serve(port?: number): Promise<{ server: SnapshotServer; changed(): Promise<void> }>;
  url: string;
  /** Resolves when the data plane found no controller that serves it. */
  readonly away: Promise<void>;
  /** Resolves when the controller did not take an answer. */
  readonly unheard: Promise<void>;
}

function setup(t: TestContext): Setup {
  const folder = mkdtempSync(join(tmpdir(), "follow-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  let gone = (): void => undefined;
  const away = new Promise<void>((resolve) => {
    gone = resolve;
  });
  let missed = (): void => undefined;
  const unheard = new Promise<void>((resolve) => {
    missed = resolve;
  });
  return {
    folder,
    url: "",
    away,
    unheard,
    follow({ certificate: trusted = certificate.cert, token = "good", clock } = {}) {
      writeFileSync(join(folder, "token"), token);
      const following = followController({
        url: this.url,
        certificate: trusted,
        gateway: "infra/edge",
        instance: "pod-1",
        tokenFile: join(folder, "token"),
        stateFolder: join(folder, "state"),
        clock: clock ?? systemClock,
        logger: { ...silentLogger, warn: () => gone(), debug: () => missed() },
        random: () => 0,
      });
      t.after(following.stop);
      return following;
    },
    async serve(port = 0) {
      let news = (): void => undefined;
      const server = await openSnapshotServer({
        replicaHost: "127.0.0.1",
        host: "127.0.0.1",
        port,
        tls: certificate,
        reviews: {
          userOf: (token) =>
            Promise.resolve(token === "good" ? ACCOUNT : token === "else" ? `${ACCOUNT}-2` : undefined),
        },
        clock: systemClock,
        logger: silentLogger,
        isReady: () => true,
        isConnected: () => true,
        accountOf: (gateway) => (gateway === "infra/edge" ? ACCOUNT : undefined),
        changed: () => news(),
        reported: () => news(),
      });
      t.after(server.close);
      this.url = `https://127.0.0.1:${server.port}`;
      return {
        server,
        changed: () =>
          new Promise<void>((resolve) => {
            news = resolve;
          }),
      };
    },
  };
}

/** Forwards the first connection to one replica and all others to another. */
async function loadBalancer(t: TestContext, first: number, others: number): Promise<number> {
  let connections = 0;
  const sockets = new Set<Socket>();
  const server = createServer((client) => {
    const upstream = connect(connections === 0 ? first : others, "127.0.0.1");
    connections += 1;
    for (const socket of [client, upstream]) {
      sockets.add(socket);
      socket.on("error", () => undefined);
    }
    client.pipe(upstream).pipe(client);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return (server.address() as AddressInfo).port;
}

test("a data plane acknowledges to the replica that has its stream, not to another one", async (t) => {
  const all = setup(t);
  const one = await all.serve();
  const another = await all.serve();
  for (const { server } of [one, another]) server.publish(new Map([["infra/edge", snapshot(80)]]));
  all.url = `https://127.0.0.1:${await loadBalancer(t, one.server.port, another.server.port)}`;
  const { source, first } = all.follow();
  await first;
  const misdirected = another.changed().then(() => assert.fail("another replica received the acknowledgment"));
  const acknowledged = async (): Promise<void> => {
    while (one.server.instances("infra/edge").every(({ ack }) => ack === undefined)) await one.changed();
  };
  source.applied(snapshot(80).version, served);
  await Promise.race([acknowledged(), misdirected]);
});

test("a snapshot is serialized once for all data planes", async (t) => {
  const all = setup(t);
  const { server } = await all.serve();
  let serialized = 0;
  const counted = (port: number): Snapshot => ({
    ...snapshot(port),
    documents: Object.assign([...snapshot(port).documents], {
      toJSON(this: readonly unknown[]) {
        serialized += 1;
        return [...this];
      },
    }),
  });
  server.publish(new Map([["infra/edge", counted(80)]]));
  const followings = Array.from({ length: 5 }, () => all.follow());
  await Promise.all(followings.map(({ first }) => first));
  assert.equal(serialized, 1);
  const changes = followings.map(({ source }) => new Promise<void>((resolve) => source.onChange(resolve)));
  server.publish(new Map([["infra/edge", counted(81)]]));
  await Promise.all(changes);
  assert.equal(serialized, 2);
});

test("a data plane gets its snapshot, answers, keeps it, and hears of changes", async (t) => {
  const all = setup(t);
  const { server, changed } = await all.serve();
  server.publish(new Map([["infra/edge", snapshot(80)]]));
  const { source, first } = all.follow();
  await first;
  assert.equal(source.current()?.version, snapshot(80).version);
  const answered = changed();
  source.applied(snapshot(80).version, {
    ...served,
    failures: [{ document: snapshot(80).documents[0], message: "no" }],
  });
  await answered;
  assert.deepEqual(server.instances("infra/edge")[0]?.ack, {
    version: snapshot(80).version,
    isServed: true,
    problems: [],
    refused: [{ policy: "infra/edge", message: "no" }],
  });
  const file = join(all.folder, "state/snapshot.json");
  assert.equal(JSON.parse(readFileSync(file, "utf8")).version, snapshot(80).version);
  assert.equal(statSync(file).mode & 0o077, 0, "secrets are in it: for its owner only");

  let reloads = 0;
  const next = new Promise<void>((resolve) =>
    source.onChange(() => {
      reloads += 1;
      resolve();
    }),
  );
  server.publish(new Map([["infra/edge", snapshot(80, { "shop/web:80": ["10.0.0.1:80"] })]]));
  server.publish(new Map([["infra/edge", snapshot(81)]]));
  await next;
  assert.equal(source.current()?.version, snapshot(81).version);
  assert.equal(reloads, 1, "new endpoints are no new configuration");
});

for (const [what, token, status] of [
  ["no token that the cluster knows", "bad", 401],
  ["the token of another Gateway's data plane", "else", 403],
] as const) {
  test(`${what}: ${status}, and nothing is sent`, async (t) => {
    const all = setup(t);
    const { server } = await all.serve();
    server.publish(new Map([["infra/edge", snapshot(80)]]));
    const { source } = all.follow({ token });
    await all.away;
    assert.equal(source.snapshot(), undefined);
    assert.equal(server.instances("infra/edge").length, 0);
  });
}

test("a controller with another certificate is not believed", async (t) => {
  const all = setup(t);
  const { server } = await all.serve();
  server.publish(new Map([["infra/edge", snapshot(80)]]));
  const { source } = all.follow({ certificate: other.cert });
  await all.away;
  assert.equal(source.snapshot(), undefined);
});

test("a controller that comes back is found again and told what is served", async (t) => {
  const all = setup(t);
  const before = await all.serve();
  before.server.publish(new Map([["infra/edge", snapshot(80)]]));
  const { source, first } = all.follow();
  await first;
  source.applied(snapshot(80).version, served);
  const { port } = before.server;
  before.server.close();
  const { server, changed } = await all.serve(port);
  server.publish(new Map([["infra/edge", snapshot(80)]]));
  while (server.instances("infra/edge")[0]?.ack === undefined) await changed();
  assert.equal(server.instances("infra/edge")[0]?.ack?.version, snapshot(80).version);
});

test("without a controller the last good snapshot is served after 5 s", async (t) => {
  const all = setup(t);
  all.url = "https://127.0.0.1:1";
  const clock = fakeClock();
  const kept = all.follow({ clock });
  kept.source.take(snapshot(80));
  kept.source.applied(snapshot(80).version, served);
  kept.stop();
  const { source, first } = all.follow({ clock });
  await clock.advance(4_900);
  assert.equal(source.snapshot(), undefined, "the controller may have a newer one");
  await clock.advance(200);
  await first;
  assert.equal(source.current()?.version, snapshot(80).version);
});

test("changed endpoints are saved for a start without a controller", async (t) => {
  const all = setup(t);
  const { server, changed } = await all.serve();
  server.publish(new Map([["infra/edge", snapshot(80)]]));
  const clock = fakeClock();
  const { source, first } = all.follow({ clock });
  await first;
  const answered = changed();
  source.applied(snapshot(80).version, served);
  await answered;
  const endpoints = { "shop/web:80": ["10.0.0.1:80"] };
  const arrived = changed();
  server.publish(new Map([["infra/edge", snapshot(80, endpoints)]]));
  await arrived;
  await clock.advance(1_000);
  const file = join(all.folder, "state/snapshot.json");
  assert.deepEqual(JSON.parse(readFileSync(file, "utf8")), snapshot(80, endpoints));
});

test("an answer that the controller did not take is told again", async (t) => {
  const all = setup(t);
  const { server, changed } = await all.serve();
  server.publish(new Map([["infra/edge", snapshot(80)]]));
  const clock = fakeClock();
  const { source, first } = all.follow({ clock });
  await first;
  // The token is refused for a while, as by a controller that cannot ask the API server.
  writeFileSync(join(all.folder, "token"), "bad");
  source.applied(snapshot(80).version, served);
  await all.unheard;
  assert.equal(server.instances("infra/edge")[0]?.ack, undefined);
  writeFileSync(join(all.folder, "token"), "good");
  const answered = changed();
  await clock.advance(1_000);
  await answered;
  assert.equal(server.instances("infra/edge")[0]?.ack?.isServed, true);
});

test("connections of one address, which any pod can open, leave the controller to others", async (t) => {
  const world = setup(t);
  const { server } = await world.serve();
  const sockets: Socket[] = [];
  t.after(() => {
    for (const socket of sockets) socket.destroy();
  });
  let closed = 0;
  const most = 512;
  for (let i = 0; i < most + 50; i++) {
    const socket = connect({ port: server.port, host: "127.0.0.1", localAddress: "127.0.0.2" });
    sockets.push(socket);
    socket.on("error", () => undefined);
    socket.on("close", () => {
      closed += 1;
    });
    socket.resume();
    await new Promise((resolve) => socket.once("connect", resolve));
  }
  await eventually("the connections beyond the limit are closed", () => closed === 50);
  server.publish(new Map([["infra/edge", snapshot(80)]]));
  const { source, first } = world.follow();
  await first;
  assert.equal(source.current()?.version, snapshot(80).version);
});
