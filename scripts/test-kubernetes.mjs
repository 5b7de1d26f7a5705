/**
 * `npm run test:kubernetes`: tests the controller in a cluster that you name. The controller runs on this machine with
 * the permissions of deploy/kubernetes; its data planes run in the cluster. For `install`, the shipped controllers run
 * in the cluster. Without the variables it prints the requirements and exits with 0, because it is not part of
 * `npm test`.
 */
import { withCluster } from "./kubernetes/cluster.mjs";
import { conformance, inference } from "./kubernetes/conformance.mjs";
import { faults } from "./kubernetes/faults.mjs";
import { install } from "./kubernetes/install.mjs";
import { scale } from "./kubernetes/scale.mjs";
import { tenants } from "./kubernetes/tenants.mjs";

const NEEDED = `npm run test:kubernetes [-- conformance | faults | inference | install | scale | tenants] needs a cluster whose pods reach this machine,
with the definitions of the Gateway API installed, and for inference those of its Inference Extension:

  KUBECONFIG               an administrator of the cluster
  GATEWAY_CONTROLLER_URL   how pods reach the controller on this machine, for example https://10.244.0.1:9443
  GATEWAY_IMAGE            the image of the data planes, built from this checkout
  GATEWAY_CONFORMANCE      for conformance: the suite as a program:
                           go test -c -o suite sigs.k8s.io/gateway-api/conformance
  GATEWAY_USABLE_ADDRESS   for conformance, optional: an address that load balancers of the cluster can have
  GATEWAY_UNUSABLE_ADDRESS for conformance, optional: one that they cannot have
  GATEWAY_INFERENCE_CONFORMANCE  for inference: the suite as a program:
                           go test -c -o suite sigs.k8s.io/gateway-api-inference-extension/conformance
  KUBERNETES_UP            optional: a command that starts the cluster first
  KUBERNETES_DOWN          optional: a command that ends it
  KUBERNETES_API_STOP      for faults: a command that kills the API server
  KUBERNETES_API_START     for faults: a command that starts it again
  KUBECONFIG_OTHER         for faults: another API server of the same cluster, for changes while the first is away
  KUBERNETES_POD_SIGNAL    for install: a command that gets a signal, a pod, and its containerID, and sends the signal
  KUBERNETES_POD_NETWORK   for install: a command that gets cut or heal, a pod, and its containerID
`;

const RUNS = { conformance, faults, inference, install, scale, tenants };
const [first = "conformance", ...rest] = process.argv.slice(2);
const isNamed = Object.hasOwn(RUNS, first);
const name = isNamed ? first : "conformance";
const { KUBECONFIG, GATEWAY_CONTROLLER_URL, GATEWAY_IMAGE } = process.env;
const SUITES = { conformance: "GATEWAY_CONFORMANCE", inference: "GATEWAY_INFERENCE_CONFORMANCE" };
const hasSuite = SUITES[name] === undefined || Boolean(process.env[SUITES[name]]);
const isReady = KUBECONFIG && GATEWAY_CONTROLLER_URL && GATEWAY_IMAGE && hasSuite;
if (!isReady) {
  process.stdout.write(NEEDED);
  process.exit(0);
}
// Whatever else is given is for the suite, for example -run-test=HTTPRouteMatching.
const flags = isNamed ? rest : process.argv.slice(2);
process.exitCode = await withCluster((cluster) => RUNS[name](cluster, flags), name === "install");
