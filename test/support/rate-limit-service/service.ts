/**
 * A rate limit service over gRPC on a free port, with one fixed window per descriptor. Like the reference service, it
 * also counts rejected calls. Tests can change its responses.
 */
import { resolve } from "node:path";
import {
  type GrpcObject,
  loadPackageDefinition,
  Server,
  ServerCredentials,
  type ServerUnaryCall,
  type ServiceClientConstructor,
  type sendUnaryData,
} from "@grpc/grpc-js";
import { loadSync } from "@grpc/proto-loader";

export interface ServiceLimit {
  /** `user` limits each value of the entry `user`; `user=alice` one value. */
  readonly entry: string;
  readonly limit: number;
  readonly unit: "SECOND" | "MINUTE" | "HOUR";
}

export interface ReceivedCall {
  readonly domain: string;
  readonly descriptors: { entries: { key: string; value: string }[] }[];
  readonly hitsAddend: number;
}

export interface RateLimitService {
  /** `127.0.0.1:<port>`. */
  readonly host: string;
  readonly calls: ReceivedCall[];
  /** Changes every answer; undefined counts again. */
  answer: ((call: ReceivedCall) => Record<string, unknown> | "never" | "error") | undefined;
  /** A new window for everybody. */
  reset(): void;
  close(): Promise<void>;
}

const SECONDS = { SECOND: 1, MINUTE: 60, HOUR: 3_600 };

export async function startRateLimitService(
  limits: readonly ServiceLimit[],
  address = "127.0.0.1:0",
): Promise<RateLimitService> {
  const definition = loadSync(resolve("test/support/rate-limit-service/rls.proto"), {
    longs: Number,
    enums: String,
    defaults: true,
  });
  const packages = loadPackageDefinition(definition) as unknown as {
    envoy: { service: { ratelimit: { v3: GrpcObject } } };
  };
  const { service } = packages.envoy.service.ratelimit.v3.RateLimitService as ServiceClientConstructor;
  const counts = new Map<string, number>();
  const calls: ReceivedCall[] = [];
  const server = new Server();
  let bent: RateLimitService["answer"];

  server.addService(service, {
    shouldRateLimit(call: ServerUnaryCall<ReceivedCall, unknown>, done: sendUnaryData<Record<string, unknown>>) {
      calls.push(call.request);
      const answer = bent === undefined ? count(call.request) : bent(call.request);
      if (answer === "never") return;
      if (answer === "error") done({ code: 13, message: "the store is away" });
      else done(null, answer);
    },
  });

  function count({ domain, descriptors, hitsAddend }: ReceivedCall): Record<string, unknown> {
    const statuses = descriptors.map(({ entries }) => {
      const rule = limits.find(({ entry }) =>
        entries.some(({ key, value }) => entry === key || entry === `${key}=${value}`),
      );
      if (!rule) return { code: "OK" };
      const name = `${domain} ${entries.map(({ key, value }) => `${key}=${value}`).join()}`;
      const after = (counts.get(name) ?? 0) + Math.max(1, hitsAddend);
      counts.set(name, after);
      return {
        code: after > rule.limit ? "OVER_LIMIT" : "OK",
        currentLimit: { requestsPerUnit: rule.limit, unit: rule.unit },
        limitRemaining: Math.max(0, rule.limit - after),
        durationUntilReset: { seconds: SECONDS[rule.unit], nanos: 0 },
      };
    });
    return { overallCode: statuses.some(({ code }) => code === "OVER_LIMIT") ? "OVER_LIMIT" : "OK", statuses };
  }

  const port = await new Promise<number>((done, fail) => {
    server.bindAsync(address, ServerCredentials.createInsecure(), (error, bound) =>
      error ? fail(error) : done(bound),
    );
  });
  return {
    host: `127.0.0.1:${port}`,
    calls,
    get answer() {
      return bent;
    },
    set answer(next) {
      bent = next;
    },
    reset: () => counts.clear(),
    async close() {
      server.forceShutdown();
    },
  };
}
