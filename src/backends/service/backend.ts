/**
 * Implements a group of equal HTTP servers, used in round-robin order. The addresses are configured (`endpoints`) or
 * read from the Kubernetes cluster.
 */

import { z } from "zod";
import { type Backend, type BackendRun, defineBackend, type ResponseReceiver } from "../../core/backend.ts";
import { GatewayError } from "../../core/errors.ts";
import type { Exchange } from "../../core/exchange.ts";
import { parseAddress } from "../../http/backend-address.ts";
import { openEndpointPools } from "../../http/client/endpoint-pools.ts";
import { CONNECT_TIMEOUT_MS } from "../../http/http-client.ts";
import { healthEvents, sendTo } from "../host/backend.ts";
import { withHttpChoice } from "../host/http-choice.ts";

const RESPONSE_HEAD_TIMEOUT_MS = 60_000;
const SHOWN_PICK_CHARS = 200;
/** Within a cluster, a pod that does not accept a connection soon is probably gone, and another pod can serve. */
const CLUSTER_CONNECT_TIMEOUT_MS = 2_000;

export const service = defineBackend({
  key: "service",
  doc: "Identical HTTP servers; requests are distributed round-robin.",
  schema: z.strictObject({
    name: z
      .string()
      .min(1)
      .max(400)
      .describe("The name in logs and traces. In a cluster, `namespace/name:port` of the Service."),
    endpoints: z
      .array(
        z.string().superRefine((text, context) => {
          const parsed = parseAddress(text);
          if (!parsed.ok || text.startsWith("unix:") || text.includes("//"))
            context.addIssue({ code: "custom", message: "expected host:port" });
        }),
      )
      .min(1)
      .max(1000)
      .optional()
      .describe("`host:port` of each server. Default: the endpoints of the Service in the cluster."),
  }),
  protection: () => "none",

  compile({ name, endpoints }, env): Backend {
    const protocol = env.tls ? "https" : "http";
    const egress = endpoints === undefined ? env.egress.to("services") : env.egress;
    const connectTimeoutMs = endpoints === undefined ? CLUSTER_CONNECT_TIMEOUT_MS : CONNECT_TIMEOUT_MS;
    const common = { protocol, egress, connectTimeoutMs } as const;
    const target = withHttpChoice({ ...common, ...(env.tls ? { tls: env.tls } : {}) }, env.protocol);
    const pools = env.acquire(
      `service ${name}`,
      { target, endpoints },
      () => {
        const { ejected, recovered } = healthEvents(name, env);
        return openEndpointPools(target, env.clock, (address) => ({
          ejected: (reason, forMs) => ejected(`${address}: ${reason}`, forMs),
          recovered,
        }));
      },
      (open) => open.close(),
    );
    const addresses = (): readonly string[] => endpoints ?? env.endpoints?.addresses(name) ?? [];
    function send(exchange: Exchange, call: ResponseReceiver): BackendRun {
      const { upstream } = exchange;
      const known = addresses();
      const next =
        upstream.picked === undefined ? pools.next(known, upstream.preferred) : pools.first(upstream.picked, known);
      upstream.hasOtherEndpoints = upstream.picked === undefined && known.length > 1;
      upstream.endpoint = next?.address;
      if (next) return sendTo(next.pool, next.address, protocol, exchange, call, next.health);
      call.attempt(name, undefined);
      // A picker must not send requests to other addresses than those of the backend.
      const failure =
        upstream.picked === undefined || known.length === 0
          ? new GatewayError("not_ready", {
              message: "the service has no ready endpoints",
              detail: `${name} has no ready endpoints`,
            })
          : new GatewayError("not_ready", {
              message: "the endpoint picker selected no endpoint of the backend",
              detail: `${name}: ${upstream.picked.join(", ").slice(0, SHOWN_PICK_CHARS)}`,
            });
      call.fail(failure);
      return { abort: () => undefined, resume: () => undefined };
    }

    return {
      attributes: { name: env.name, type: "static", protocol: "http" },
      defaultTimeoutMs: RESPONSE_HEAD_TIMEOUT_MS,
      routing: { followsPicker: true, servers: { name, addresses } },
      prepare: (exchange) => ({ call: (receiver) => send(exchange, receiver) }),
      describe() {
        const failing = pools.failing();
        const health = Object.keys(failing).length === 0 ? {} : { health: failing };
        return { service: name, endpoints: addresses(), connections: pools.connections(), ...health };
      },
    };
  },
});
