"""The objects of a cluster, in memory: what a kube-apiserver and etcd keep, without HTTP and without rights."""
