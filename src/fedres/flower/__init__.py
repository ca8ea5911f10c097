"""FedRes.SGD on other machines, as an application of the federated engine Flower.

The logic of both sides is in `server_state` and `client_state`, which know nothing of Flower;
`server_app` and `client_app` carry their messages.
"""
