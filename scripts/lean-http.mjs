/**
 * Loads `node:http` in bundles without an `import`: that evaluates all exports of the module, and on Node 22 and later some
 * of them load the WebSocket and `fetch` client, which takes 20 to 30 ms and up to 15 MB.
 */
import http from "node:http";

const NAMESPACE = "lean-http";

export const leanHttp = {
  name: "lean-http",
  setup(bundler) {
    bundler.onResolve({ filter: /^(?:node:)?http$/ }, ({ kind }) =>
      kind === "import-statement" ? { path: "http", namespace: NAMESPACE } : undefined,
    );
    bundler.onLoad({ filter: /.*/, namespace: NAMESPACE }, () => ({ contents }));
  },
};

/** Getters are left out, because reading them loads code. The bundler rejects an import of one. */
const names = Object.entries(Object.getOwnPropertyDescriptors(http))
  .filter(([, descriptor]) => "value" in descriptor)
  .map(([name]) => name);

const contents = `const http = process.getBuiltinModule("node:http");
export default http;
export const { ${names.join(", ")} } = http;`;
