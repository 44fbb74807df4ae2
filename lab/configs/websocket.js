// For k6: each connection sends a message, waits until it has come back as it was, and sends the next. Nothing is counted for a
// message but what k6 counts itself; what came back wrong is, and ends the connection.
import { Counter } from 'k6/metrics';
import { WebSocket } from 'k6/experimental/websockets';

const connections = Number(__ENV.CONNECTIONS);
const wrong = new Counter('lab_wrong');
const failed = new Counter('lab_failed');
const right = new Counter('lab_right');

export const options = {
  insecureSkipTLSVerify: true,
  summaryTrendStats: ['count'],
  scenarios: {
    echo: { executor: 'per-vu-iterations', vus: connections, iterations: 1, maxDuration: '10m', gracefulStop: '5s' },
  },
};

export default function () {
  const until = Date.now() + Number(__ENV.SECONDS) * 1000;
  const socket = new WebSocket(__ENV.URL);
  let sent = 0;
  let expected = '';
  const next = () => {
    sent += 1;
    expected = `equipoise-lab ${__VU} ${sent}`;
    socket.send(expected);
  };
  socket.onopen = next;
  socket.onmessage = (event) => {
    if (event.data !== expected) {
      wrong.add(1);
      socket.close();
    } else if (Date.now() < until) {
      next();
    } else {
      right.add(sent);
      socket.close();
    }
  };
  socket.onerror = () => failed.add(1);
}

export function handleSummary(data) {
  const count = (name) => (data.metrics[name] ? data.metrics[name].values.count : 0);
  const found = { messages: count('lab_right'), wrong: count('lab_wrong'), failed: count('lab_failed') };
  return { stdout: `lab ${JSON.stringify(found)}\n` };
}
