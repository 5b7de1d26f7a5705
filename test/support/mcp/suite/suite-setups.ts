/**
 * The setups of the conformance suite: direct, through the gateway with one target, with two targets in each
 * `prefixMode`, and with two replicas.
 */
import { startGateway, type TestGateway } from "../../gateway.ts";
import { startRedis } from "../../store/redis-server.ts";
import { stdioFixture } from "../fixture.ts";
import { openDoor } from "./suite-door.ts";
import type { Fixture } from "./suite-fixtures.ts";

export type Use = (url: string) => Promise<void>;

export interface Setup {
  readonly title: string;
  run(fixture: Fixture, use: Use): Promise<void>;
}

/** Occurs in no text of a fixture, so that it can be taken out of answers again. */
const TARGET = "fx7q";

export const SETUPS: readonly Setup[] = [
  { title: "gateway", run: (fixture, use) => withTarget(fixture, (target) => throughGateways([target], {}, 1, use)) },
  ...(["conditional", "always", "never"] as const).map((prefixMode) => ({
    title: `two targets, prefixMode ${prefixMode}`,
    run: (fixture: Fixture, use: Use) =>
      withTarget(fixture, (target) => throughGateways([target, neighbour()], { prefixMode }, 1, use)),
  })),
  {
    title: "two replicas in turn",
    run: (fixture, use) => withTarget(fixture, (target) => throughGateways([target], {}, 2, use)),
  },
];

/** Another server with the same features, listed after the one that the suite means. */
function neighbour(): object {
  return { name: "neighbour", stdio: stdioFixture("conformance-server", "stdio") };
}

async function withTarget(fixture: Fixture, use: (target: object) => Promise<void>): Promise<void> {
  if (fixture.start === undefined) return use({ name: TARGET, stdio: fixture.stdio });
  const remote = await fixture.start();
  try {
    await use({ name: TARGET, mcp: { url: remote.url } });
  } finally {
    await remote.close();
  }
}

async function throughGateways(targets: object[], mcp: { prefixMode?: string }, replicas: number, use: Use) {
  const redis = replicas > 1 ? await startRedis() : undefined;
  const gateways: TestGateway[] = [];
  try {
    for (let i = 0; i < replicas; i++)
      gateways.push(
        await startGateway(
          JSON.stringify({
            config: {
              logging: { level: "warn,access=off" },
              ...(redis ? { store: { redis: redis.url } } : {}),
            },
            gateways: { default: { port: 0, address: "127.0.0.1" } },
            routes: [{ backends: [{ mcp: { targets, ...mcp } }] }],
          }),
        ),
      );
    const prefix = targets.length > 1 && mcp.prefixMode !== "never" ? TARGET : undefined;
    const door = await openDoor(
      gateways.map((gateway) => gateway.url()),
      prefix,
    );
    await use(door.url);
    await door.close();
  } finally {
    for (const gateway of gateways) await gateway.close();
    await redis?.close();
  }
}
