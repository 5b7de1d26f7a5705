/**
 * Implements `--gateway`, which reads the configuration from a Kubernetes cluster, either through its controller or
 * directly.
 */

import { hostname } from "node:os";
import { keepAwake, systemClock, wait } from "../base/clock.ts";
import { print } from "../base/print.ts";
import type { Environment } from "../config/text/env.ts";
import { defined } from "../json/json.ts";
import { openApiClient, openClusterAccess } from "../kubernetes/api-client.ts";
import { type ClusterSource, followController } from "../kubernetes/follow-controller.ts";
import { processConfig } from "../kubernetes/process-config.ts";
import { watchGateway } from "../kubernetes/watch-gateway.ts";
import type { LogOutput } from "../record/log/log-output.ts";
import { createLogging, parseLogFilter } from "../record/log/logger.ts";

export type ClusterFlags = { readonly gateway: string } & (
  | { readonly from: string; readonly tokenFile: string; readonly stateFolder: string | undefined }
  | { readonly kubeconfig: string | undefined; readonly context: string | undefined }
);

const POLL_MS = 100;

/** Returns the text of the standalone configuration and the environment in which it is loaded. */
export function clusterConfig(flags: ClusterFlags, environment: Environment): ReturnType<typeof processConfig> {
  return "from" in flags ? processConfig(environment) : { text: "config: {}\n", environment };
}

/** Waits for the first snapshot. Resolves with undefined if the process is stopped first. */
export async function followedCluster(
  flags: ClusterFlags,
  environment: Environment,
  output: LogOutput,
  isStopWanted: () => boolean,
): Promise<ClusterSource | undefined> {
  const filter = parseLogFilter("info");
  const logging = createLogging({
    clock: systemClock,
    output,
    color: false,
    filter: filter.ok ? filter.filter : (undefined as never),
    format: "from" in flags ? "json" : "text",
  });
  const logger = logging.logger.for("kubernetes");
  const common = { clock: systemClock, logger, random: Math.random, gateway: flags.gateway };
  const followed =
    "from" in flags
      ? followController({
          ...common,
          url: flags.from,
          certificate: environment.GATEWAY_CONTROLLER_CA || undefined,
          instance: environment.GATEWAY_INSTANCE || hostname(),
          tokenFile: flags.tokenFile,
          stateFolder: flags.stateFolder,
        })
      : watchGateway({ ...common, client: await directClient(flags, environment) });
  const awake = keepAwake();
  let hasSnapshot = false;
  void followed.first.then(() => {
    hasSnapshot = true;
  });
  while (!hasSnapshot && !isStopWanted()) await wait(systemClock, POLL_MS);
  awake.cancel();
  return hasSnapshot ? followed.source : undefined;
}

async function directClient(
  { kubeconfig, context }: { readonly kubeconfig: string | undefined; readonly context: string | undefined },
  environment: Environment,
) {
  const access = await openClusterAccess({
    environment,
    isInteractive: false,
    err: (text) => print(2, text),
    flags: { ...defined({ kubeconfig, context }) },
  });
  return openApiClient(access, systemClock);
}
