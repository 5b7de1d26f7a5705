/**
 * Implements the flags, signals, and exit codes of `gateway controller`.
 */

import { randomBytes } from "node:crypto";
import { isIP } from "node:net";
import { hostname, networkInterfaces } from "node:os";
import { parseArgs } from "node:util";
import { jsonResponse, textResponse } from "../admin/server/endpoint.ts";
import { openAdminServer } from "../admin/server/server.ts";
import { systemClock, wait } from "../base/clock.ts";
import { print } from "../base/print.ts";
import { processResidentBytes } from "../base/process-memory.ts";
import { VERSION } from "../base/version.ts";
import { processEnvironment } from "../config/text/env.ts";
import { restrictNetworks } from "../http/local-address.ts";
import { defined } from "../json/json.ts";
import { openApiClient, openClusterAccess } from "../kubernetes/api-client.ts";
import { type Controller, startController } from "../kubernetes/controller.ts";
import { registerControllerMetrics } from "../kubernetes/controller-metrics.ts";
import { KubeconfigError } from "../kubernetes/kubeconfig.ts";
import { listenAddress } from "../kubernetes/snapshot-server.ts";
import { openLogOutput } from "../record/log/log-output.ts";
import { createLogging, parseLogFilter } from "../record/log/logger.ts";
import { createMetrics } from "../record/log/metrics.ts";
import { registerProcessMetrics, registerThreadMetrics } from "../record/log/process-metrics.ts";

const HELP = `Usage: gateway controller [options]

Serves the Gateways of a Kubernetes cluster whose class has the controllerName policy.gateway.internal/gateway:
deploys a data plane for each, sends it what to serve, and writes the status of Gateways, HTTPRoutes and GatewayPolicies.

  --image <image>          The image of the data planes. Default: the variable GATEWAY_IMAGE.
  --replicas <n>           Pods of each Gateway. Default: 1, and an autoscaler may change it.
  --service-type <type>    LoadBalancer (default), NodePort, ClusterIP, or None: the pods' own addresses.
  --no-deploy              Does not deploy data planes; you deploy them yourself.
  --backend-networks <list>  Private networks that Backends and policies may use, for example 10.20.0.0/16. Default: none.
  --listen <address:port>  Where data planes connect. Default: :9443
  --url <url>              How they find it. Default: https://gateway-controller.<namespace>.svc:9443
  --stats <address:port>   Health and metrics. Default: 0.0.0.0:15020
  --namespace <name>       The controller's own namespace. Default: that of its pod or kubeconfig.
  --kubeconfig <file>      Default: the pod's ServiceAccount, or the usual kubeconfig.
  --context <name>         Context in the kubeconfig.
  --log-level <filter>     Default: info
`;

const SERVICE_TYPES = ["LoadBalancer", "NodePort", "ClusterIP", "None"] as const;

export async function runController(args: readonly string[]): Promise<number> {
  let flags: ReturnType<typeof readFlags>;
  try {
    flags = readFlags(args);
  } catch (error) {
    print(2, `${(error as Error).message}\n\n${HELP}`);
    return 2;
  }
  if (flags.help) {
    print(1, HELP);
    return 0;
  }
  const environment = processEnvironment();
  const listen = listenAddress(flags.listen ?? ":9443");
  const stats = listenAddress(flags.stats ?? "0.0.0.0:15020");
  const serviceType = SERVICE_TYPES.find((type) => type === (flags["service-type"] ?? "LoadBalancer"));
  const image = flags.image ?? environment.GATEWAY_IMAGE ?? "";
  const replicas = Number(flags.replicas ?? "1");
  const backendNetworks = flags["backend-networks"] ?? environment.GATEWAY_BACKEND_NETWORKS ?? "";
  const filter = parseLogFilter(flags["log-level"] ?? "info");
  const wrong = [
    listen ? [] : ["--listen is <address:port>"],
    stats ? [] : ["--stats is <address:port>"],
    serviceType ? [] : [`--service-type is one of ${SERVICE_TYPES.join(", ")}`],
    Number.isInteger(replicas) && replicas >= 1 && replicas <= 1000 ? [] : ["--replicas is a number from 1 to 1000"],
    image !== "" || flags["no-deploy"] ? [] : ["--image <image> or --no-deploy is needed"],
    networkFault(backendNetworks) ?? [],
    filter.ok ? [] : [`--log-level: ${filter.error}`],
    flags.url === undefined || (URL.canParse(flags.url) && flags.url.startsWith("https://"))
      ? []
      : ["--url is an https:// URL"],
  ].flat();
  if (!listen || !stats || !serviceType || !filter.ok || wrong.length > 0) {
    print(2, `${wrong.join("\n")}\n\n${HELP}`);
    return 2;
  }

  process.stdout.on("error", () => undefined);
  const output = openLogOutput(1, systemClock);
  const { logger } = createLogging({ clock: systemClock, output, color: false, filter: filter.filter, format: "text" });
  let controller: Controller | undefined;
  let stop = (): void => undefined;
  const stopped = new Promise<void>((resolve) => {
    stop = resolve;
  });
  for (const signal of ["SIGTERM", "SIGINT"] as const) process.on(signal, () => stop());
  const onDefect = (error: unknown): void =>
    logger.error("unexpected error", {
      error: error instanceof Error ? (error.stack ?? error.message) : String(error),
    });
  process.on("uncaughtException", onDefect);
  process.on("unhandledRejection", onDefect);
  try {
    const access = await openClusterAccess({
      environment,
      isInteractive: false,
      err: (text) => print(2, text),
      flags: {
        ...defined({ kubeconfig: flags.kubeconfig, context: flags.context }),
      },
    });
    const namespace = flags.namespace ?? access.namespace;
    const identity = `${hostname()}-${randomBytes(4).toString("hex")}`;
    const metrics = createMetrics();
    registerProcessMetrics(metrics, { version: VERSION, startedAtMs: systemClock.now() });
    registerThreadMetrics(metrics, "main");
    registerControllerMetrics(metrics, () => controller?.state());
    const statistics = await openAdminServer(
      { kind: "tcp", hosts: [stats.host === "" ? "0.0.0.0" : stats.host], port: stats.port },
      [
        { path: "/healthz/live", doc: "Whether the process runs.", GET: () => textResponse(200, "ok\n") },
        {
          path: "/healthz/ready",
          doc: "Whether this replica serves current snapshots to data planes.",
          GET: () => (controller?.isReady() ? textResponse(200, "ready\n") : textResponse(503, "not ready\n")),
        },
        {
          path: "/metrics",
          doc: "Metrics in the Prometheus text format.",
          GET: () => ({ status: 200, type: "text/plain; version=0.0.4; charset=utf-8", body: metrics.render() }),
        },
        {
          path: "/state",
          doc: "What the controller does.",
          GET: () => jsonResponse({ ...controller?.state(), memory: processResidentBytes() }),
        },
      ],
      logger.for("admin"),
      "scrapers",
    );
    for (let attempt = 1; controller === undefined; attempt += 1) {
      try {
        controller = await startController({
          client: openApiClient(access, systemClock),
          clock: systemClock,
          logger: logger.for("kubernetes"),
          random: Math.random,
          namespace,
          identity,
          listen,
          host:
            isIP(listen.host) === 0 || listen.host === "0.0.0.0" || listen.host === "::" ? ownAddress() : listen.host,
          url: flags.url ?? `https://gateway-controller.${namespace}.svc:${listen.port}`,
          deploy: flags["no-deploy"] ? undefined : { image, replicas, serviceType, backendNetworks },
        });
      } catch (error) {
        // Retries unless the port is in use.
        if ((error as NodeJS.ErrnoException).code === "EADDRINUSE") throw error;
        logger.warn("start failed; retrying", { reason: (error as Error).message });
        const isOver = await Promise.race([
          wait(systemClock, Math.min(5_000, 500 * attempt)).then(() => false),
          stopped.then(() => true),
        ]);
        if (isOver) break;
      }
    }
    logger.info("started", { version: VERSION, namespace, identity });
    await stopped;
    logger.info("shutting down");
    await Promise.race([controller?.stop(), wait(systemClock, 5_000)]);
    statistics.close();
    output.flushSync();
    process.exit(0);
  } catch (error) {
    output.flushSync();
    if (!(error instanceof KubeconfigError) && (error as NodeJS.ErrnoException).code === undefined) throw error;
    print(2, `${(error as Error).message}\n`);
    return 1;
  }
}

/** Data planes apply the same setting to their connections. */
function networkFault(networks: string): string | undefined {
  try {
    restrictNetworks(networks);
    return undefined;
  } catch (error) {
    return `--backend-networks: ${(error as Error).message}`;
  }
}

/** Returns an address of this pod that is not internal, or loopback if there is none. */
function ownAddress(): string {
  const addresses = Object.values(networkInterfaces()).flatMap((list) => list ?? []);
  return addresses.find(({ internal }) => !internal)?.address ?? "127.0.0.1";
}

function readFlags(args: readonly string[]) {
  return parseArgs({
    args: [...args],
    options: {
      image: { type: "string" },
      replicas: { type: "string" },
      "service-type": { type: "string" },
      "no-deploy": { type: "boolean" },
      "backend-networks": { type: "string" },
      listen: { type: "string" },
      url: { type: "string" },
      stats: { type: "string" },
      namespace: { type: "string" },
      kubeconfig: { type: "string" },
      context: { type: "string" },
      "log-level": { type: "string" },
      help: { type: "boolean", short: "h" },
    },
  }).values;
}
