/**
 * Shared by the runs that change routes under load: routes whose responses carry a version, the check that a data plane
 * serves a version, and clients that count failed requests.
 */
import { ask } from "./cluster.mjs";

const HEADER = "x-version";
const REQUEST_TIMEOUT_MS = 10_000;

export function httpGateway(metadata, port) {
  return {
    apiVersion: "gateway.networking.k8s.io/v1",
    kind: "Gateway",
    metadata,
    spec: { gatewayClassName: "gateway", listeners: [{ name: "http", port, protocol: "HTTP" }] },
  };
}

/** A route to the Service `web`. */
export function versionedRoute(metadata, gateway, version, more = {}) {
  const set = [{ name: HEADER, value: version }];
  return {
    apiVersion: "gateway.networking.k8s.io/v1",
    kind: "HTTPRoute",
    metadata,
    spec: {
      parentRefs: [{ name: gateway }],
      ...more,
      rules: [
        {
          filters: [{ type: "ResponseHeaderModifier", responseHeaderModifier: { set } }],
          backendRefs: [{ name: "web", port: 80 }],
        },
      ],
    },
  };
}

export async function servesVersion(address, port, version, headers = {}) {
  return (await ask(address, port, "/", headers))?.headers[HEADER] === version;
}

/** Sends requests to the addresses in turn. */
export function startTraffic(addresses, port, everyMs) {
  let sent = 0;
  let requests = 0;
  let failures = 0;
  const timer = setInterval(async () => {
    sent += 1;
    requests += 1;
    const answer = await ask(addresses[sent % addresses.length], port, "/", {}, REQUEST_TIMEOUT_MS);
    if (answer?.status !== 200) failures += 1;
  }, everyMs);
  return {
    /** Returns the counts since the last call. */
    take() {
      const result = { requests, failures };
      requests = 0;
      failures = 0;
      return result;
    },
    stop: () => clearInterval(timer),
  };
}
