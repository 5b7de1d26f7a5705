/**
 * `npm run test:kubernetes`: the Gateway API's conformance suite against our own controller, in a cluster that you name.
 * The controller runs on this machine with the rights of deploy/kubernetes; its data planes run in the cluster. Without
 * the variables it says what is needed and exits with 0: it is no part of `npm test`.
 */
import { spawn, spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const NEEDED = `npm run test:kubernetes needs a cluster whose pods reach this machine, with the Gateway API's definitions installed:

  KUBECONFIG               an administrator of the cluster
  GATEWAY_CONFORMANCE      the conformance suite as a program:
                           go test -c -o suite sigs.k8s.io/gateway-api/conformance
  GATEWAY_CONTROLLER_URL   how pods reach the controller on this machine, for example https://10.244.0.1:9443
  GATEWAY_IMAGE            the image of the data planes, built from this checkout
  KUBERNETES_UP            optional: a command that starts the cluster first
  KUBERNETES_DOWN          optional: a command that ends it
`;

const { KUBECONFIG, GATEWAY_CONFORMANCE, GATEWAY_CONTROLLER_URL, GATEWAY_IMAGE, KUBERNETES_UP, KUBERNETES_DOWN } =
  process.env;
if (!KUBECONFIG || !GATEWAY_CONFORMANCE || !GATEWAY_CONTROLLER_URL || !GATEWAY_IMAGE) {
  process.stdout.write(NEEDED);
  process.exit(0);
}
if (!existsSync(join(root, "dist/gateway.js"))) fail("dist/gateway.js is missing: run `npm run build` first");

const folder = mkdtempSync(join(tmpdir(), "gateway-kubernetes-"));
let controller;
try {
  if (KUBERNETES_UP) run("sh", ["-c", KUBERNETES_UP]);
  run("kubectl", ["apply", "--server-side", "-f", join(root, "kubernetes")]);
  run("kubectl", ["apply", "-f", join(root, "deploy/kubernetes/controller.yaml")]);
  // The one that is tested runs here.
  run("kubectl", ["scale", "deployment", "-n", "gateway-system", "gateway-controller", "--replicas=0"]);
  controller = startController();
  process.exitCode = suite();
} finally {
  controller?.kill("SIGTERM");
  if (KUBERNETES_DOWN) spawnSync("sh", ["-c", KUBERNETES_DOWN], { stdio: "inherit" });
  rmSync(folder, { recursive: true, force: true });
}

/** With a token of its own ServiceAccount, so that missing rights show. */
function startController() {
  const token = join(folder, "token");
  const account = ["create", "token", "gateway-controller", "-n", "gateway-system", "--duration=8h"];
  writeFileSync(token, run("kubectl", account, "pipe"), { mode: 0o600 });
  const config = JSON.parse(run("kubectl", ["config", "view", "--raw", "--minify", "--flatten", "-o", "json"], "pipe"));
  config.users = [{ name: "controller", user: { tokenFile: token } }];
  config.contexts[0].context.user = "controller";
  const kubeconfig = join(folder, "kubeconfig");
  writeFileSync(kubeconfig, JSON.stringify(config), { mode: 0o600 });
  const { hostname, port } = new URL(GATEWAY_CONTROLLER_URL);
  const flags = ["--kubeconfig", kubeconfig, "--namespace", "gateway-system", "--image", GATEWAY_IMAGE];
  const addresses = ["--url", GATEWAY_CONTROLLER_URL, "--listen", `${hostname}:${port}`, "--stats", "127.0.0.1:0"];
  return spawn(process.execPath, [join(root, "dist/gateway.js"), "controller", ...flags, ...addresses], {
    stdio: "inherit",
  });
}

/** Exit code of the suite; the features are those that the GatewayClass declares. */
function suite() {
  const report = join(folder, "report.yaml");
  const { version } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
  const { status } = spawnSync(
    GATEWAY_CONFORMANCE,
    [
      "-test.v",
      "-test.timeout=50m",
      "-test.run=TestConformance",
      "-gateway-class=gateway",
      "-conformance-profiles=GATEWAY-HTTP",
      "-organization=gateway",
      "-project=mcp-llm-gateway",
      "-url=https://example.invalid",
      `-version=${version}`,
      "-contact=@gateway",
      `-report-output=${report}`,
      ...process.argv.slice(2),
    ],
    { stdio: "inherit" },
  );
  if (existsSync(report) && process.argv.length === 2)
    writeFileSync(join(root, "docs/kubernetes-conformance.yaml"), readFileSync(report));
  return status ?? 1;
}

function run(command, args, output = "inherit") {
  const { status, stdout, error } = spawnSync(command, args, {
    stdio: ["ignore", output, "inherit"],
    encoding: "utf8",
  });
  if (status !== 0) fail(`${command} ${args[0]} failed${error ? `: ${error.message}` : ""}`);
  return stdout ?? "";
}

function fail(message) {
  process.stderr.write(`${message}\n`);
  process.exit(1);
}
