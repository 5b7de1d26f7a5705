/**
 * The frame of a configuration with one route, for the gateway and for agentgateway.
 */
export function gatewayRoute({ port, backend, policies = {}, config = {}, listener = {} }) {
  return JSON.stringify({
    config: { adminAddr: "off", logging: { level: "info,access=off" }, ...config },
    gateways: { default: { port, address: "127.0.0.1", ...listener } },
    routes: [{ name: "work", backends: [backend], policies }],
  });
}

export function agentgatewayRoute({ port, backend, policies = {}, config = {}, listener = {} }) {
  const addresses = { adminAddr: "127.0.0.1:0", statsAddr: "127.0.0.1:0", readinessAddr: "127.0.0.1:0" };
  return JSON.stringify({
    config: { ...addresses, ...config },
    binds: [{ port, listeners: [{ ...listener, routes: [{ policies, backends: [backend] }] }] }],
  });
}
